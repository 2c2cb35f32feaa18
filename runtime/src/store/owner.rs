//! Owning a SQLite file: an operating-system lock beside it, which dies with the process and with nothing else.
//!
//! The lock keeps a second server out; the term raised under it (`leases::raise_term`) makes every write of a first server
//! that somehow lives on fail (I10).

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// Holds the lock of a database file until it is dropped.
#[derive(Debug)]
pub struct FileOwner {
    // Never read: what it is for is to stay open.
    _lock: File,
}

/// The lock was not granted.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// Another server has the file.
    #[error(
        "the database file {} is in use by the process {pid}; stop that server or choose another file", .path.display()
    )]
    Held {
        /// The database file.
        path: PathBuf,
        /// The process that holds it, as far as it said so.
        pid: String,
    },
    /// The lock's own file cannot be used.
    #[error("the lock file {} cannot be used: {source}", .path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Longest process id that is read back from a lock file, in bytes.
const PID_BYTES_MAX: u64 = 20;

impl FileOwner {
    /// Takes the lock of a database file, without waiting.
    ///
    /// # Errors
    /// [`OwnerError`].
    pub fn lock(database: &Path) -> Result<Self, OwnerError> {
        let mut name = OsString::from(database.as_os_str());
        name.push(".lock");
        let path = PathBuf::from(name);
        let io = |source| OwnerError::Io {
            path: path.clone(),
            source,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(io)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                // Only for the message: a lock file that cannot be read still means that somebody holds it.
                let _ = std::io::Read::by_ref(&mut file)
                    .take(PID_BYTES_MAX)
                    .read_to_string(&mut pid);
                return Err(OwnerError::Held {
                    path: database.to_owned(),
                    pid: pid.trim().to_owned(),
                });
            }
            Err(error) => return Err(io(error.into())),
        }
        file.set_len(0).map_err(io)?;
        file.rewind().map_err(io)?;
        writeln!(file, "{}", std::process::id()).map_err(io)?;
        Ok(Self { _lock: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_owner_is_refused_with_the_first_ones_process() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let database = dir.path().join("pc.db");
        let first = FileOwner::lock(&database).expect("free");
        // The lock belongs to the open file, so a second open in the same process is refused like another process.
        let refused = FileOwner::lock(&database).expect_err("held").to_string();
        assert!(refused.contains(&std::process::id().to_string()), "{refused}");
        drop(first);
        FileOwner::lock(&database).expect("free again");
    }
}
