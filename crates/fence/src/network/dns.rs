//! Answers to name queries from inside a fence, for programs that resolve a name before they use the proxy.
//! A name gets addresses only if the proxy would dial them. A query for any other name never leaves the host, so
//! it cannot carry data out.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use simple_dns::rdata::{A, AAAA, RData};
use simple_dns::{
    CLASS, Name, OPCODE, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, ResourceRecord, TYPE,
};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::egress::{CheckedAddresses, Egress, EgressError};
use super::hosts::Host;

/// Queries at a time in one fence. More are dropped: resolvers ask again.
const MOST_QUERIES: usize = 64;

/// Far longer than any query. A longer one is cut, and so malformed.
const LONGEST_QUERY: usize = 4096;

/// Addresses in one answer. Each takes 28 bytes, its name being compressed: behind the longest question that
/// is within the 512 bytes which every resolver takes.
const MOST_ADDRESSES: usize = 8;

/// Seconds for which an answer may be kept. The proxy resolves anew in any case.
const TIME_TO_LIVE: u32 = 30;

/// After a failure to receive, so that a lasting one does not turn into a busy loop.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(200);

pub(super) async fn serve(socket: UdpSocket, egress: Arc<Egress>) {
    let socket = Arc::new(socket);
    let mut queries = JoinSet::new();
    let mut buffer = vec![0; LONGEST_QUERY];
    loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut buffer) => received,
            Some(_) = queries.join_next() => continue,
        };
        match received {
            Ok((length, client)) if queries.len() < MOST_QUERIES => {
                let query = buffer[..length].to_vec();
                queries.spawn(reply(Arc::clone(&socket), client, query, Arc::clone(&egress)));
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "a name query from inside a fence was not received");
                sleep(PAUSE_AFTER_FAILURE).await;
            }
        }
    }
}

async fn reply(socket: Arc<UdpSocket>, client: SocketAddr, query: Vec<u8>, egress: Arc<Egress>) {
    let Some(answer) = answer(&query, &egress).await else { return };
    if let Err(error) = socket.send_to(&answer, client).await {
        tracing::debug!(%error, "the answer to a name query was not sent");
    }
}

/// The answer to a query; none to what is not a query.
async fn answer(query: &[u8], egress: &Egress) -> Option<Vec<u8>> {
    let query = Packet::parse(query).ok().filter(|packet| !packet.has_flags(PacketFlag::RESPONSE))?;
    let mut answer = Packet::new_reply(query.id());
    answer.set_flags(PacketFlag::RECURSION_AVAILABLE);
    if query.has_flags(PacketFlag::RECURSION_DESIRED) {
        answer.set_flags(PacketFlag::RECURSION_DESIRED);
    }
    match (query.opcode(), query.questions.as_slice()) {
        (OPCODE::StandardQuery, [question]) => {
            match records(question, egress).await {
                Ok(records) => answer.answers = records,
                Err(code) => *answer.rcode_mut() = code,
            }
            answer.questions.push(question.clone());
        }
        (OPCODE::StandardQuery, _) => *answer.rcode_mut() = RCODE::FormatError,
        _ => *answer.rcode_mut() = RCODE::NotImplemented,
    }
    answer.build_bytes_vec_compressed().ok()
}

async fn records<'a>(question: &Question<'a>, egress: &Egress) -> Result<Vec<ResourceRecord<'a>>, RCODE> {
    if !matches!(question.qclass, QCLASS::CLASS(CLASS::IN)) {
        return Err(RCODE::Refused);
    }
    let host = host_of(&question.qname).ok_or(RCODE::NameError)?;
    let addresses = match question.qtype {
        QTYPE::TYPE(TYPE::A | TYPE::AAAA) => egress.addresses_of(&host).await,
        _ => egress.grant(&host).map(|_| CheckedAddresses::default()),
    };
    let addresses = addresses.map_err(|error| code_of(&error))?;
    let record = |data| ResourceRecord::new(question.qname.clone(), CLASS::IN, TIME_TO_LIVE, data);
    let data = addresses.iter().filter_map(|address| data_for(question.qtype, address));
    Ok(data.take(MOST_ADDRESSES).map(record).collect())
}

fn data_for(wanted: QTYPE, address: IpAddr) -> Option<RData<'static>> {
    match (wanted, address) {
        (QTYPE::TYPE(TYPE::A), IpAddr::V4(address)) => Some(RData::A(A { address: address.to_bits() })),
        (QTYPE::TYPE(TYPE::AAAA), IpAddr::V6(address)) => {
            Some(RData::AAAA(AAAA { address: address.to_bits() }))
        }
        _ => None,
    }
}

/// The name as a host, if it is one. An address is not a name, though some programs ask for it.
fn host_of(name: &Name<'_>) -> Option<Host> {
    // A dot within a label would make another name of it.
    if name.as_bytes().any(|label| label.contains(&b'.')) {
        return None;
    }
    let labels: Option<Vec<&str>> = name.as_bytes().map(|label| std::str::from_utf8(label).ok()).collect();
    labels?.join(".").parse().ok().filter(|host| matches!(host, Host::Name(_)))
}

/// A name that may not be reached does not exist here: with `Refused`, resolvers would ask again and again.
fn code_of(error: &EgressError) -> RCODE {
    match error {
        EgressError::ResolvingTookTooLong { .. } | EgressError::OwnAddressesUnknown(_) => {
            RCODE::ServerFailure
        }
        _ => RCODE::NameError,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use simple_dns::Label;

    use super::super::hosts::AllowedHosts;
    use super::super::outside::scripted::Script;
    use super::*;

    const PUBLIC: &str = "93.184.216.34";

    fn query(name: Name<'_>, kind: QTYPE, class: CLASS) -> Vec<u8> {
        let mut packet = Packet::new_query(0x1234);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        packet.questions.push(Question::new(name, kind, QCLASS::CLASS(class), false));
        packet.build_bytes_vec().unwrap()
    }

    fn ask(name: &str, kind: TYPE) -> Vec<u8> {
        query(Name::new(name).unwrap(), kind.into(), CLASS::IN)
    }

    fn egress(patterns: &[&str]) -> (Egress, Arc<Script>) {
        let script = Arc::new(Script::default());
        script.name("example.org", &[&[PUBLIC, "2606:2800::1"]]);
        let patterns = patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
        (Egress::new(AllowedHosts::Only(patterns), script.outside()), script)
    }

    /// The code, and the addresses as text.
    async fn answered(egress: &Egress, query: &[u8]) -> (RCODE, Vec<String>) {
        let bytes = answer(query, egress).await.unwrap();
        assert!(bytes.len() <= 512);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.id(), 0x1234);
        assert!(packet.has_flags(PacketFlag::RESPONSE | PacketFlag::RECURSION_AVAILABLE));
        let text = |record: &ResourceRecord<'_>| {
            assert_eq!(record.ttl, TIME_TO_LIVE);
            match &record.rdata {
                RData::A(A { address }) => IpAddr::from(address.to_be_bytes()).to_string(),
                RData::AAAA(AAAA { address }) => IpAddr::from(address.to_be_bytes()).to_string(),
                other => panic!("{other:?}"),
            }
        };
        (packet.rcode(), packet.answers.iter().map(text).collect())
    }

    #[tokio::test]
    async fn an_allowed_name_has_its_addresses_by_family() {
        let (egress, _) = egress(&["example.org"]);
        let v4 = answered(&egress, &ask("example.org", TYPE::A)).await;
        assert_eq!(v4, (RCODE::NoError, vec![PUBLIC.to_owned()]));
        let v6 = answered(&egress, &ask("EXAMPLE.org", TYPE::AAAA)).await;
        assert_eq!(v6, (RCODE::NoError, vec!["2606:2800::1".to_owned()]));
    }

    #[tokio::test]
    async fn other_types_of_an_allowed_name_are_empty_and_not_looked_up() {
        let (egress, script) = egress(&["example.org"]);
        for kind in [TYPE::TXT, TYPE::MX, TYPE::NULL, TYPE::HTTPS, TYPE::CNAME] {
            assert_eq!(answered(&egress, &ask("example.org", kind)).await, (RCODE::NoError, vec![]));
        }
        let any = query(Name::new("example.org").unwrap(), QTYPE::ANY, CLASS::IN);
        assert_eq!(answered(&egress, &any).await, (RCODE::NoError, vec![]));
        assert!(script.looked_up().is_empty());
    }

    #[tokio::test]
    async fn a_name_that_is_not_allowed_does_not_exist_and_is_not_looked_up() {
        let (egress, script) = egress(&["example.org"]);
        for name in ["secret.attacker.net", "localhost", "sub.example.org", "127.0.0.1", "0x7f.1"] {
            for kind in [TYPE::A, TYPE::AAAA, TYPE::TXT] {
                assert_eq!(answered(&egress, &ask(name, kind)).await, (RCODE::NameError, vec![]), "{name}");
            }
        }
        assert!(script.looked_up().is_empty());
    }

    #[tokio::test]
    async fn a_name_with_a_forbidden_address_does_not_exist() {
        let (egress, script) = egress(&["example.org"]);
        script.name("example.org", &[&["93.184.216.34", "169.254.169.254"]]);
        assert_eq!(answered(&egress, &ask("example.org", TYPE::A)).await, (RCODE::NameError, vec![]));
    }

    #[tokio::test]
    async fn a_dot_inside_a_label_makes_no_other_name() {
        let (egress, script) = egress(&["example.org"]);
        let name = Name::new_with_labels(&[Label::new_unchecked(b"example.org")]);
        let sent = query(name, TYPE::A.into(), CLASS::IN);
        assert_eq!(answered(&egress, &sent).await.0, RCODE::NameError);
        assert!(script.looked_up().is_empty());
    }

    #[tokio::test]
    async fn the_longest_answer_is_within_512_bytes() {
        let label = "a".repeat(60);
        let name = format!("{label}.{label}.{label}.{label}.org");
        let (egress, script) = egress(&[&name]);
        let mut addresses: Vec<String> = (1..=20).map(|host| format!("2606:2800::{host}")).collect();
        addresses.push(PUBLIC.to_owned());
        script.name(&name, &[&addresses.iter().map(String::as_str).collect::<Vec<_>>()]);
        let (code, answers) = answered(&egress, &ask(&name, TYPE::AAAA)).await;
        assert_eq!((code, answers.len()), (RCODE::NoError, MOST_ADDRESSES));
        assert_eq!(answered(&egress, &ask(&name, TYPE::A)).await.1, [PUBLIC]);
    }

    #[tokio::test]
    async fn other_classes_opcodes_and_counts_are_turned_down() {
        let (egress, _) = egress(&["example.org"]);
        let chaos = query(Name::new("example.org").unwrap(), TYPE::TXT.into(), CLASS::CH);
        assert_eq!(answered(&egress, &chaos).await.0, RCODE::Refused);
        let mut two = Packet::parse(&chaos).unwrap();
        two.questions.push(two.questions[0].clone());
        assert_eq!(answered(&egress, &two.build_bytes_vec().unwrap()).await.0, RCODE::FormatError);
        let mut update = Packet::new_query(0x1234);
        *update.opcode_mut() = OPCODE::Update;
        assert_eq!(answered(&egress, &update.build_bytes_vec().unwrap()).await.0, RCODE::NotImplemented);
    }

    #[tokio::test]
    async fn what_is_no_query_has_no_answer() {
        let (egress, _) = egress(&["example.org"]);
        let mut response = ask("example.org", TYPE::A);
        response[2] |= 0x80;
        for garbage in [&b""[..], b"garbage", &[0xff; 64], &response] {
            assert!(answer(garbage, &egress).await.is_none());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in any::<Vec<u8>>(), at in 0_usize..29, change in any::<u8>()) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let (egress, _) = egress(&[]);
            let mut changed = ask("example.org", TYPE::A);
            changed[at] = change;
            changed.extend_from_slice(&bytes);
            let _ = runtime.block_on(answer(&bytes, &egress));
            let _ = runtime.block_on(answer(&changed, &egress));
        }
    }
}
