//! Several servers as one: each request of a session goes to the server that it is for, and their lists are merged.
//!
//! No server is started before something needs it. What its lists hold is known from a probe; once it runs for the
//! session, its own lists count. A server that is slow, broken or away never keeps the others from answering.

mod member;
mod routing;

use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::watch;
use wire::LogLevel;

pub use self::member::MemberReport;
pub(crate) use self::member::{Member, Placing};
use crate::Session;
use crate::catalogue::{Catalogue, List};
use crate::roster::Roster;
use crate::session::Prefer;
use crate::stream::Keep;
use crate::view::{Part, View};
use crate::worker::Worker;
use upstream::Attachment;

/// A list is answered without the servers that have not shown theirs by then.
const LIST_WITHIN: Duration = Duration::from_secs(10);

/// How often a server that says that its lists change is asked for them.
const BETWEEN_REFRESHES: Duration = Duration::from_millis(100);

/// A call by a name that is not known waits so long for servers that may have it.
const CALL_WITHIN: Duration = Duration::from_secs(60);

/// What servers that start together have is told together.
const TOLD_WITHIN: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Aggregate {
    session: Weak<Session>,
    roster: Arc<Roster>,
    members: Vec<Member>,
    view: RwLock<Arc<View>>,
    /// Counts what may have changed the view.
    changes: AtomicU64,
    /// How many of them the view knows of.
    shown: AtomicU64,
    /// Held while the view is made anew.
    showing: Mutex<()>,
    /// Whether the client will soon be told what is different.
    is_telling: AtomicBool,
    /// How many members are being looked at.
    looks: watch::Sender<usize>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What the client asked every server to log.
    level: Option<LogLevel>,
    /// Whose each resource of the last list is.
    resources: HashMap<String, usize>,
    /// Whose each task is.
    tasks: HashMap<String, usize>,
}

impl Aggregate {
    pub(crate) fn new(session: &Arc<Session>, members: Vec<Member>) -> Arc<Self> {
        let aggregate = Arc::new(Self {
            session: Arc::downgrade(session),
            roster: Arc::clone(session.roster()),
            members,
            view: RwLock::default(),
            changes: AtomicU64::new(1),
            shown: AtomicU64::new(0),
            showing: Mutex::default(),
            is_telling: AtomicBool::new(false),
            looks: watch::Sender::new(0),
            state: Mutex::default(),
        });
        aggregate.view();
        for member in aggregate.members.iter().filter(|member| member.is_eager()) {
            member.start(session);
        }
        aggregate.consider_all();
        aggregate
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// What the client sees, made from what is known now.
    fn view(&self) -> Arc<View> {
        let is_old = || self.shown.load(Ordering::Acquire) < self.changes.load(Ordering::Acquire);
        if is_old() {
            let _showing = self.showing.lock();
            if is_old() {
                let changes = self.changes.load(Ordering::Acquire);
                self.show();
                self.shown.store(changes, Ordering::Release);
            }
        }
        Arc::clone(&self.view.read())
    }

    /// Something is known that was not. Often it is not alone, so the client is told a little later.
    fn note_change(self: &Arc<Self>) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        if self.is_telling.swap(true, Ordering::AcqRel) {
            return;
        }
        let aggregate = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(TOLD_WITHIN).await;
            if let Some(aggregate) = aggregate.upgrade() {
                aggregate.is_telling.store(false, Ordering::Release);
                aggregate.view();
            }
        });
    }

    /// Those that there are now.
    pub(crate) fn workers(&self) -> Vec<Arc<Worker>> {
        self.members.iter().flat_map(Member::workers).collect()
    }

    /// Finds out what a member offers, if that is not known and can be found out.
    fn consider(self: &Arc<Self>, place: usize) {
        let member = &self.members[place];
        let Some(session) = self.session.upgrade() else { return };
        if !member.begin_look(&session) {
            return;
        }
        self.looks.send_modify(|looks| *looks += 1);
        let aggregate = Arc::clone(self);
        tokio::spawn(async move {
            aggregate.members[place].look(&session).await;
            drop(session);
            aggregate.note_change();
            aggregate.looks.send_modify(|looks| *looks -= 1);
        });
    }

    /// Waits until every member has been looked at, or for so long.
    async fn looked(&self, within: Duration) {
        let mut looks = self.looks.subscribe();
        let _ = tokio::time::timeout(within, looks.wait_for(|looks| *looks == 0)).await;
    }

    fn is_looking(&self) -> bool {
        *self.looks.borrow() > 0
    }

    /// Makes what the client sees from what is known now, and tells it what is different.
    fn show(&self) {
        let (Some(session), Some(terms)) = (self.session.upgrade(), &self.roster.terms) else { return };
        let known: Vec<(Option<Arc<Catalogue>>, bool)> = self
            .members
            .iter()
            .map(|member| (member.catalogue(), member.trouble(&session).is_none()))
            .collect();
        let parts: Vec<Part<'_>> = self
            .members
            .iter()
            .zip(&known)
            .map(|(member, (catalogue, is_shown))| Part {
                name: member.server.name(),
                rules: &member.server.plan.tools,
                catalogue: catalogue.as_ref(),
                names: member.server.plan.names.unwrap_or(terms.names),
                hides: &member.server.plan.hides,
                is_shown: *is_shown,
            })
            .collect();
        let view = self.roster.views.get(&parts);
        let before = std::mem::replace(&mut *self.view.write(), Arc::clone(&view));
        if session.route().is_some() {
            for list in view.differences(&before) {
                tell_change(&session, list);
            }
        }
    }

    /// Finds out what is not known of any member.
    fn consider_all(self: &Arc<Self>) {
        for place in 0..self.members.len() {
            self.consider(place);
        }
    }

    fn place_of(&self, server: &str) -> Option<usize> {
        self.members.iter().position(|member| member.server.name() == server)
    }

    /// A server says that one of its lists is different now.
    pub(crate) fn heard_change(self: &Arc<Self>, server: &str, list: List) {
        // Its resources are asked for when the client asks; the client hears that it should.
        if list == List::Resources
            && let Some(session) = self.session.upgrade()
        {
            tell_change(&session, list);
        }
        self.look_again(server);
    }

    /// A server has started for this session: what it lists counts from now on.
    pub(crate) fn came_up(self: &Arc<Self>, worker: &Worker) {
        let level = self.lock().level;
        if let (Some(level), Some(session)) = (level, self.session.upgrade()) {
            worker.tell_level(session.id(), level);
        }
        if !worker.serves_many() && !worker.is_for_one_call() {
            self.look_again(&worker.upstream.name);
        }
    }

    fn look_again(self: &Arc<Self>, server: &str) {
        let Some(place) = self.place_of(server) else { return };
        if !self.members[place].begin_refresh() {
            return;
        }
        let aggregate = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                if aggregate.members[place].look_at_own().await {
                    aggregate.note_change();
                }
                if !aggregate.members[place].end_refresh() {
                    return;
                }
                // A server that always has news is not asked all the time.
                tokio::time::sleep(BETWEEN_REFRESHES).await;
            }
        });
    }

    /// The client's machine has come or gone.
    pub(crate) fn attachment_changed(self: &Arc<Self>, attachment: Option<&Arc<Attachment>>) {
        for place in 0..self.members.len() {
            if self.members[place].forget_attached(attachment) {
                self.consider(place);
            }
        }
        self.note_change();
    }

    /// The id that a server at a URL knows this session by.
    pub(crate) fn session_id_at(&self, server: &str) -> Option<String> {
        let place = self.place_of(server)?;
        self.members[place].workers().iter().find_map(|worker| worker.condition().2?.session_id())
    }

    /// Sees again whether a server can be used that could not.
    pub(crate) fn try_again(self: &Arc<Self>, server: &str) {
        let (Some(place), Some(session)) = (self.place_of(server), self.session.upgrade()) else { return };
        self.members[place].forgive();
        self.members[place].start(&session);
        self.consider(place);
    }

    /// What each server is and does, for reports.
    pub(crate) fn reports(&self) -> Vec<MemberReport> {
        let session = self.session.upgrade();
        self.members.iter().map(|member| member.report(session.as_ref())).collect()
    }

    /// The tools that the client sees, each with its server.
    pub(crate) async fn tools(self: &Arc<Self>) -> Vec<(String, usize)> {
        if self.is_looking() {
            self.looked(LIST_WITHIN).await;
        }
        self.view().shown_tools().to_vec()
    }
}

fn tell_change(session: &Session, list: List) {
    let news = Bytes::from(json!({ "jsonrpc": "2.0", "method": list.news() }).to_string());
    session.deliver(news.into(), Keep::IfRoom, Prefer::Standalone);
}
