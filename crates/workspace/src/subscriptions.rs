//! Subscriptions to files. Watches the directory of each file, because files are replaced more often than
//! rewritten. The first subscription starts the thread that listens.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::context::ServerContext;
use crate::files::{Parents, PathError};
use crate::output::Output;
use crate::resources::{ResourceError, named};

/// Subscriptions at most.
const MAX_SUBSCRIPTIONS: usize = 256;
const EVENT_BYTES: usize = 16 * 1024;

/// Events after which a file may have other contents.
const CHANGES: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE);

pub(crate) struct Subscriptions {
    context: Arc<ServerContext>,
    output: Arc<Output>,
    shared: Arc<Mutex<Option<Listening>>>,
}

/// Exists from the first subscription on.
struct Listening {
    inotify: Arc<OwnedFd>,
    /// By URI: the watched directory and the name in it.
    subscriptions: HashMap<String, (i32, Vec<u8>)>,
}

impl Subscriptions {
    pub(crate) fn new(context: Arc<ServerContext>, output: Arc<Output>) -> Self {
        Self { context, output, shared: Arc::default() }
    }

    pub(crate) fn subscribe(&self, params: Option<&RawValue>) -> Result<Value, ResourceError> {
        let (uri, path) = named(&self.context, params)?;
        // Only a file that can be read now can be subscribed to.
        self.context.workspace.open_file(&path)?;
        let target = self.context.workspace.write_target(&path, Parents::Expect)?;
        let failed = |errno: rustix::io::Errno| ResourceError::from(PathError::io(&uri, errno));
        let mut shared = lock(&self.shared);
        if shared.is_none() {
            *shared = Some(self.listen().map_err(failed)?);
        }
        let Some(listening) = &mut *shared else { return Ok(json!({})) };
        if listening.subscriptions.len() >= MAX_SUBSCRIPTIONS && !listening.subscriptions.contains_key(&uri) {
            return Err(ResourceError::Params(format!(
                "{MAX_SUBSCRIPTIONS} files are subscribed to already; unsubscribe from some first"
            )));
        }
        // Names the open directory itself: its path may lead elsewhere by now.
        let directory = format!("/proc/self/fd/{}", target.directory().as_raw_fd());
        let watch = inotify::add_watch(&*listening.inotify, directory, CHANGES).map_err(failed)?;
        listening.subscriptions.insert(uri, (watch, target.name().as_bytes().to_vec()));
        Ok(json!({}))
    }

    pub(crate) fn unsubscribe(&self, params: Option<&RawValue>) -> Result<Value, ResourceError> {
        let (uri, _) = named(&self.context, params)?;
        if let Some(listening) = &mut *lock(&self.shared)
            && let Some((watch, _)) = listening.subscriptions.remove(&uri)
            && !listening.subscriptions.values().any(|(other, _)| *other == watch)
        {
            // Fails if the directory is gone, and its watch with it.
            let _ = inotify::remove_watch(&*listening.inotify, watch);
        }
        Ok(json!({}))
    }

    fn listen(&self) -> Result<Listening, rustix::io::Errno> {
        let inotify = Arc::new(inotify::init(CreateFlags::CLOEXEC)?);
        let (events, shared, output) =
            (Arc::clone(&inotify), Arc::clone(&self.shared), Arc::clone(&self.output));
        let listen = move || {
            let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
            let mut reader = Reader::new(&*events, &mut buffer);
            loop {
                let event = match reader.next() {
                    Ok(event) => event,
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(_) => return,
                };
                let name = event.file_name().map(|name| name.to_bytes().to_vec()).unwrap_or_default();
                let is_overflow = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
                for uri in concerned(&shared, event.wd(), &name, is_overflow) {
                    output.notify(wire::method::RESOURCE_UPDATED, &json!({ "uri": uri }));
                }
            }
        };
        std::thread::Builder::new().spawn(listen).map_err(|_| rustix::io::Errno::AGAIN)?;
        Ok(Listening { inotify, subscriptions: HashMap::new() })
    }
}

fn lock(shared: &Mutex<Option<Listening>>) -> MutexGuard<'_, Option<Listening>> {
    shared.lock()
}

/// The URIs that an event concerns. After an overflow of the queue, any file may have changed.
fn concerned(shared: &Mutex<Option<Listening>>, watch: i32, name: &[u8], is_overflow: bool) -> Vec<String> {
    let shared = lock(shared);
    let subscriptions = shared.iter().flat_map(|listening| &listening.subscriptions);
    subscriptions
        .filter(|(_, (place, file))| is_overflow || (*place == watch && file == name))
        .map(|(uri, _)| uri.clone())
        .collect()
}
