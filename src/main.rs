//! The command line's entry: arguments, configuration, telemetry, application, exit code.

fn main() {}
