//! Several servers as one: each request of a session goes to the server that it is for, and their lists are merged.
//!
//! No server is started before something needs it. What its lists hold is known from a probe; once it runs for the
//! session, its own lists count. A server that is slow, broken or away never keeps the others from answering.
//!
//! [`Merge`] decides; this file performs what it says. `calls.rs` routes the client's requests.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use tokio::sync::watch;
use upstream::{Attachment, StartError};

use super::member::{Member, MemberReport};
use super::merge::{Merge, MergeAction};
use crate::catalogue::{Catalogue, CatalogueError};
use crate::client::{Client, Prefer};
use crate::gateway_context::GatewayContext;
use crate::list::List;
use crate::rights::Rights;
use crate::roster::Roster;
use crate::stream::Keep;
use crate::view::{Part, View};
use crate::worker::{ClientHandle, Worker, WorkerEvent};

/// A list is answered without the servers that have not shown theirs by then.
pub(super) const LIST_WITHIN: Duration = Duration::from_secs(15);

/// How often a server that says that its lists change is asked for them.
const BETWEEN_REFRESHES: Duration = Duration::from_millis(100);

/// Changes within this time are told together.
const SHOWN_WITHIN: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Aggregate {
    pub(super) client: Arc<Client>,
    pub(super) context: Arc<GatewayContext>,
    roster: Arc<Roster>,
    rights: Arc<Rights>,
    pub(super) members: Vec<Member>,
    merge: Mutex<Merge>,
    /// How many members are being looked at, for those who wait.
    looks: watch::Sender<usize>,
    /// For the handles that workers have of this session.
    me: Weak<Self>,
}

impl Aggregate {
    pub(crate) fn new(
        client: &Arc<Client>,
        roster: &Arc<Roster>,
        rights: &Arc<Rights>,
        members: Vec<Member>,
    ) -> Arc<Self> {
        let merge = Merge::new(members.iter().map(Member::known_catalogue));
        let aggregate = Arc::new_cyclic(|me| Self {
            client: Arc::clone(client),
            context: Arc::clone(client.context()),
            roster: Arc::clone(roster),
            rights: Arc::clone(rights),
            members,
            merge: Mutex::new(merge),
            looks: watch::Sender::new(0),
            me: Weak::clone(me),
        });
        // The client has not seen any list yet, so there is nothing to tell.
        drop(aggregate.show());
        for place in 0..aggregate.members.len() {
            let member = &aggregate.members[place];
            // The client of a restored session waits for news of what it had subscribed to.
            if member.is_eager() || !client.record().wishes_at(member.name()).0.is_empty() {
                aggregate.start(place);
            }
        }
        aggregate.consider_all();
        aggregate
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Merge> {
        self.merge.lock()
    }

    /// The way from a member's worker back to this session.
    fn handle(&self, place: usize) -> ClientHandle {
        let me = Weak::clone(&self.me);
        ClientHandle::new(&self.client, move |event| {
            if let Some(aggregate) = me.upgrade() {
                aggregate.hear(place, event);
            }
        })
    }

    fn hear(self: &Arc<Self>, place: usize, event: WorkerEvent) {
        match event {
            WorkerEvent::CameUp => self.came_up(place),
            WorkerEvent::ListChanged(list) => {
                let actions = self.lock().list_changed(place, list);
                self.perform(actions);
            }
            WorkerEvent::TaskStarted(task) => self.lock().note_task(place, task),
            // Clients of several servers were told nothing about this one in particular.
            WorkerEvent::Contradicted => {}
        }
    }

    /// A server has started for this session: its own lists count.
    fn came_up(self: &Arc<Self>, place: usize) {
        let workers = self.members[place].workers();
        if workers.iter().any(|worker| !worker.serves_many() && !worker.is_for_one_call()) {
            let action = self.lock().refresh(place);
            self.perform(action);
        }
    }

    /// The worker of a member for the next call.
    pub(super) fn worker(&self, place: usize) -> Option<Arc<Worker>> {
        let worker = self.members[place].worker(|| self.handle(place))?;
        // A session that ends looks for its workers after it has said so.
        if self.client.has_ended() {
            let (worker, id) = (Arc::clone(&worker), self.client.id());
            self.context.tasks.spawn(async move { worker.leave(id).await });
            return None;
        }
        Some(worker)
    }

    /// Starts a member ahead of the first call.
    fn start(&self, place: usize) {
        if let Some(worker) = self.worker(place) {
            self.context.tasks.spawn(async move { worker.ready().await });
        }
    }

    /// All workers that there are now.
    pub(crate) fn workers(&self) -> Vec<Arc<Worker>> {
        self.members.iter().flat_map(Member::workers).collect()
    }

    fn perform(self: &Arc<Self>, actions: impl IntoIterator<Item = MergeAction>) {
        for action in actions {
            match action {
                MergeAction::Look(place) => self.look(place),
                MergeAction::Refresh(place) => self.refresh(place, Duration::ZERO),
                MergeAction::RefreshLater(place) => self.refresh(place, BETWEEN_REFRESHES),
                MergeAction::ShowSoon => self.show_soon(),
                MergeAction::Tell(list) => tell_change(&self.client, list),
            }
        }
    }

    fn look(self: &Arc<Self>, place: usize) {
        self.looks.send_modify(|looks| *looks += 1);
        let aggregate = Arc::clone(self);
        self.context.tasks.spawn(async move {
            let found = aggregate.find_catalogue(place).await;
            // Why a start failed was logged by the worker.
            if let Some(error) = found.as_ref().err().and_then(CatalogueError::not_of_start) {
                let (session, upstream) = (aggregate.client.handle(), aggregate.members[place].name());
                tracing::warn!(%session, upstream, "not available: {error}");
            }
            let found = found.map_err(|error| error.to_string());
            let actions = aggregate.lock().looked(place, found, Instant::now());
            aggregate.perform(actions);
            aggregate.looks.send_modify(|looks| *looks -= 1);
        });
    }

    /// What a member offers: from a probe, or if that cannot be, from the session's own worker.
    async fn find_catalogue(&self, place: usize) -> Result<Arc<Catalogue>, CatalogueError> {
        let member = &self.members[place];
        if let Some(probed) = member.probe().await {
            return probed;
        }
        let worker = self.worker(place).ok_or(StartError::Stopped)?;
        member.look_at(&worker, &self.client).await
    }

    fn refresh(self: &Arc<Self>, place: usize, after: Duration) {
        let aggregate = Arc::clone(self);
        self.context.tasks.spawn(async move {
            tokio::time::sleep(after).await;
            let found = aggregate.members[place].own_catalogue().await;
            let actions = aggregate.lock().refreshed(place, found);
            aggregate.perform(actions);
        });
    }

    fn show_soon(self: &Arc<Self>) {
        let me = Weak::clone(&self.me);
        self.context.tasks.spawn(async move {
            tokio::time::sleep(SHOWN_WITHIN).await;
            if let Some(aggregate) = me.upgrade() {
                aggregate.lock().telling();
                aggregate.view();
            }
        });
    }

    /// What the client sees, made from what is known now. The client is told of lists that changed.
    pub(super) fn view(self: &Arc<Self>) -> Arc<View> {
        self.update_view();
        self.lock().view()
    }

    pub(super) fn update_view(self: &Arc<Self>) {
        let changes = self.show();
        self.perform(changes);
    }

    /// Makes the view anew if it is stale. Returns what the client must be told.
    fn show(&self) -> Vec<MergeAction> {
        let mut merge = self.lock();
        if !merge.is_stale() {
            return Vec::new();
        }
        let parts: Vec<Part<'_>> = self
            .members
            .iter()
            .enumerate()
            .map(|(place, member)| Part {
                name: member.name(),
                rules: &member.server.plan.tools,
                catalogue: merge.knowledge(place).catalogue(),
                names: member.server.plan.names.unwrap_or(self.roster.terms.names),
                hides: &member.server.plan.hides,
                is_shown: self.trouble_in(&merge, place).is_none(),
            })
            .collect();
        let view = self.roster.views.get(&parts, &self.rights.tools);
        drop(parts);
        merge.show(view)
    }

    /// Why a member cannot be used now.
    pub(super) fn trouble(&self, place: usize) -> Option<String> {
        self.trouble_in(&self.lock(), place)
    }

    fn trouble_in(&self, merge: &Merge, place: usize) -> Option<String> {
        let obstacle = self.members[place].obstacle(&self.client);
        obstacle.or_else(|| merge.knowledge(place).trouble().map(ToOwned::to_owned))
    }

    /// Finds out what is not known of any member.
    pub(super) fn consider_all(self: &Arc<Self>) {
        for place in 0..self.members.len() {
            self.consider(place);
        }
    }

    fn consider(self: &Arc<Self>, place: usize) {
        let Some(pause) = self.members[place].look_again_after(&self.client) else { return };
        let action = self.lock().consider(place, pause, Instant::now());
        self.perform(action);
    }

    /// Whether a member is being looked at.
    pub(super) fn is_looking(&self) -> bool {
        self.lock().looks() > 0
    }

    /// Waits until every member has been looked at, or for so long.
    pub(super) async fn looked(&self, within: Duration) {
        let mut looks = self.looks.subscribe();
        let _ = tokio::time::timeout(within, looks.wait_for(|looks| *looks == 0)).await;
    }

    /// The client's machine has come or gone.
    pub(crate) fn attachment_changed(self: &Arc<Self>, attachment: Option<&Arc<Attachment>>) {
        let there: Vec<usize> =
            (0..self.members.len()).filter(|place| self.members[*place].is_attached()).collect();
        // It may be another machine, with something else.
        let returned = if attachment.is_some() { &there[..] } else { &[] };
        let actions = self.lock().attachment_changed(returned);
        for &place in &there {
            self.consider(place);
        }
        self.perform(actions);
    }

    fn place_of(&self, server: &str) -> Option<usize> {
        self.members.iter().position(|member| member.name() == server)
    }

    /// The id that a server at a URL knows this session by.
    pub(crate) fn session_id_at(&self, server: &str) -> Option<String> {
        let workers = self.members[self.place_of(server)?].workers();
        workers.iter().find_map(|worker| worker.condition().2?.session_id())
    }

    /// Sees again whether a server can be used that could not.
    pub(crate) fn try_again(self: &Arc<Self>, server: &str) {
        let Some(place) = self.place_of(server) else { return };
        self.lock().forgive(place);
        self.start(place);
        self.consider(place);
    }

    /// Each server, for reports.
    pub(crate) fn reports(&self) -> Vec<MemberReport> {
        (0..self.members.len()).map(|place| self.members[place].report(self.trouble(place))).collect()
    }

    /// The tools that the client sees, each with the place of its server.
    pub(crate) async fn tools(self: &Arc<Self>) -> Vec<(String, usize)> {
        if self.is_looking() {
            self.looked(LIST_WITHIN).await;
        }
        self.view().shown_tools().to_vec()
    }
}

fn tell_change(client: &Client, list: List) {
    let news = bytes::Bytes::from(json!({ "jsonrpc": "2.0", "method": list.change() }).to_string());
    client.deliver(news.into(), Keep::IfRoom, Prefer::Standalone);
}
