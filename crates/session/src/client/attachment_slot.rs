//! The connection to a client's own machine, while there is one.

use std::sync::Arc;

use parking_lot::Mutex;
use upstream::Attachment;

#[derive(Debug, Default)]
pub(crate) struct AttachmentSlot(Mutex<Option<Arc<Attachment>>>);

impl AttachmentSlot {
    pub(crate) fn get(&self) -> Option<Arc<Attachment>> {
        self.0.lock().clone()
    }

    /// Takes a new connection. Returns the one before.
    pub(crate) fn set(&self, attachment: Arc<Attachment>) -> Option<Arc<Attachment>> {
        self.0.lock().replace(attachment)
    }

    /// Forgets a connection, unless another has taken its place. Returns whether it did.
    pub(crate) fn clear(&self, attachment: &Arc<Attachment>) -> bool {
        let mut current = self.0.lock();
        let is_current = current.as_ref().is_some_and(|current| Arc::ptr_eq(current, attachment));
        if is_current {
            *current = None;
        }
        is_current
    }
}
