//! Ends the sessions of callers whose tokens were removed or have expired. Authentication alone would only refuse their
//! next request.

use std::sync::Arc;
use std::time::Duration;

use identity::Principal;
use jiff::Timestamp;

use crate::Gateway;
use crate::token_file::TokenTable;
use crate::token_store::Authentication;

/// How often the tokens are compared.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// A changed file is read once more after this time: an editor may have emptied it before writing it.
const CONFIRM_AFTER: Duration = Duration::from_secs(3);

/// Ends the sessions of callers whose tokens are gone from the file or have expired. Never returns.
pub(crate) async fn watch(gateway: &Gateway) {
    let Authentication::Tokens(store) = &gateway.config.authentication else {
        return std::future::pending().await;
    };
    let mut before = store.current();
    loop {
        tokio::time::sleep(CHECK_EVERY).await;
        end_expired(gateway, &store.current());
        if Arc::ptr_eq(&before, &store.current()) {
            continue;
        }
        tokio::time::sleep(CONFIRM_AFTER).await;
        let now = store.current();
        for session in gateway.sessions.all() {
            if !is_revoked(&session.key().principal, &before, &now) {
                continue;
            }
            gateway.sessions.withdraw_access(session, "the token of its caller was removed");
        }
        before = now;
    }
}

fn end_expired(gateway: &Gateway, tokens: &TokenTable) {
    let now = Timestamp::now();
    for session in gateway.sessions.all() {
        let principal = &session.key().principal;
        if tokens.has_expired(principal, now) || gateway.sessions.has_expired(principal) {
            gateway.sessions.withdraw_access(session, "the access of its caller has expired");
        }
    }
}

/// Returns true if the caller's token is gone or was replaced. A caller that had none before, such as `anonymous`,
/// keeps its sessions once it has one.
fn is_revoked(principal: &Principal, before: &TokenTable, now: &TokenTable) -> bool {
    match (before.token_of(principal), now.token_of(principal)) {
        (_, None) => true,
        (Some(before), Some(now)) => before != now,
        (None, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: &str = "alice:alices-token-1234\n";
    const BOB: &str = "bob:bobs-token-12345678\n";

    fn is_alice_revoked(before: &str, now: &str) -> bool {
        let table = |text: &str| TokenTable::parse(text.as_bytes()).unwrap();
        is_revoked(&Principal::named("alice").unwrap(), &table(before), &table(now))
    }

    #[test]
    fn a_removed_or_replaced_token_is_revoked() {
        assert!(is_alice_revoked(&format!("{ALICE}{BOB}"), BOB));
        assert!(is_alice_revoked(ALICE, ""));
        assert!(is_alice_revoked(ALICE, "alice:another-token-1234\n"));
    }

    #[test]
    fn a_token_that_stays_is_not_revoked() {
        assert!(!is_alice_revoked(ALICE, &format!("{BOB}{ALICE}")));
        assert!(!is_alice_revoked(&format!("{BOB}{ALICE}"), ALICE));
    }

    #[test]
    fn a_token_in_place_of_its_hash_is_the_same() {
        let token = crate::NewToken { name: "alice", token: "alices-token-1234", expires: None, note: None };
        let hashed = token.hashed_line().unwrap();
        assert!(!is_alice_revoked(ALICE, &hashed));
    }

    #[test]
    fn a_caller_who_gets_a_first_token_keeps_its_sessions() {
        assert!(!is_alice_revoked(BOB, ALICE));
        assert!(is_alice_revoked(BOB, BOB), "but not without one");
    }
}
