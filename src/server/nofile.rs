//! The limit on open files, which is also one on connections.

use rustix::io;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one. Returns the limit in force, none where there is no limit.
///
/// # Errors
/// When the system refuses; the limit is then what it was.
pub fn raise() -> io::Result<Option<u64>> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    }
    Ok(limit.maximum)
}

#[cfg(test)]
mod tests {
    use super::{Resource, getrlimit, raise};

    #[test]
    fn the_soft_limit_is_the_hard_one_afterwards() {
        let maximum = raise().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    }
}
