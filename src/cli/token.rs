//! `onceward token`

use std::io::{self, BufRead};

use anyhow::Context;
use clap::Subcommand;
use sha2::{Digest, Sha256};

use super::{Done, out};

/// Admin tokens are stored as their SHA-256 only.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token: the first line is the token, to be kept by its user; the second goes into the config.
    New,
    /// Read a token from stdin and print its SHA-256 for the config.
    Hash,
}

impl TokenCommand {
    /// Prints the result.
    pub fn run(self) -> anyhow::Result<Done> {
        match self {
            Self::New => {
                let mut bytes = [0_u8; 32];
                getrandom::fill(&mut bytes).context("the system gives no random bytes")?;
                let token = format!("onceward_{}", hex::encode(bytes));
                out(&format!("token:  {token}\nsha256: {}\n", digest(&token)))?;
            }
            Self::Hash => {
                let mut line = String::new();
                io::stdin().lock().read_line(&mut line).context("cannot read a token from stdin")?;
                let token = line.trim_end_matches(['\r', '\n']);
                anyhow::ensure!(
                    !token.is_empty(),
                    "no token on stdin; type `printf %s \"$TOKEN\" | onceward token hash`"
                );
                out(&format!("{}\n", digest(token)))?;
            }
        }
        Ok(Done::Ok)
    }
}

fn digest(token: &str) -> String {
    hex::encode(Sha256::digest(token))
}
