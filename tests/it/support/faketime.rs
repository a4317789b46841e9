//! Clocks that run wrong: libfaketime shifts what a process reads of the wall clock, and leaves the steady clock alone.

use std::path::Path;

const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// The environment of a process whose clock is off by what stands in a file, such as `+3600`, read anew each time. With the system's
/// own allocator: Redis comes with another one, and the two wait for each other at the start.
pub fn by_file(file: &Path) -> Vec<(String, String)> {
    let mut environment = library(&["libc.so.6"]);
    environment.push(("FAKETIME_TIMESTAMP_FILE".to_owned(), file.to_str().expect("a plain path").to_owned()));
    environment.push(("FAKETIME_NO_CACHE".to_owned(), "1".to_owned()));
    environment
}

/// The environment of a process whose clock is off by so much, such as `+600`.
pub fn by(offset: &str) -> Vec<(String, String)> {
    let mut environment = library(&[]);
    environment.push(("FAKETIME".to_owned(), offset.to_owned()));
    environment
}

fn library(more: &[&str]) -> Vec<(String, String)> {
    let places = std::fs::read_dir("/usr/lib").expect("a directory").filter_map(|place| Some(place.ok()?.path()));
    let place = places.into_iter().find(|place| place.join(LIBRARY).exists());
    let place = place.expect("libfaketime: install the package faketime to run these tests");
    let preload: Vec<String> =
        [LIBRARY].iter().chain(more).map(|name| place.join(name).to_str().expect("a plain path").to_owned()).collect();
    let steady = ("FAKETIME_DONT_FAKE_MONOTONIC".to_owned(), "1".to_owned());
    vec![("LD_PRELOAD".to_owned(), preload.join(":")), steady]
}
