//! The released interface, package 0.1.0: the only code that sees a type made from it. A 0.2.0 would stand beside it.

mod imports;
mod output;
mod request;

use wasmtime::component::InstancePre;
use wasmtime::{Store, StoreContextMut};

use super::call::{ConfigFault, Needs};
use super::failure::FailureKind;
use super::host::Ctx;
use super::load::Descriptor;

pub(super) use imports::link;
pub(super) use output::{Disposition, Taken, Verdict};

mod generated {
    wasmtime::component::bindgen!({
        path: "wit/onceward-plugin-0.1",
        world: "plugin",
        exports: { default: async },
        // What goes in is borrowed: the body is copied once, into the guest.
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}

/// What a plugin has to export; the generated code asks for the same.
pub(super) const EXPORTS: [&str; 3] =
    ["onceward:plugin/meta@0.1.0", "onceward:plugin/verifier@0.1.0", "onceward:plugin/extractor@0.1.0"];

/// The interfaces that the host offers. `types` holds no function.
pub(super) const IMPORTS: [&str; 3] =
    ["onceward:plugin/types@0.1.0", "onceward:plugin/log@0.1.0", "onceward:plugin/crypto@0.1.0"];

/// Why a guest gave no answer.
pub(super) enum Fault {
    /// Wasmtime ended it, or could not read what it returned.
    Ended(wasmtime::Error),
    /// It returned what is an error, or what no plugin may return.
    Answer(FailureKind, String),
}

impl From<wasmtime::Error> for Fault {
    fn from(error: wasmtime::Error) -> Self {
        Self::Ended(error)
    }
}

/// A component that fits the world.
#[derive(Clone)]
pub(super) struct Prepared(generated::PluginPre<Ctx>);

impl Prepared {
    pub(super) fn new(pre: InstancePre<Ctx>) -> wasmtime::Result<Self> {
        generated::PluginPre::new(pre).map(Self)
    }

    pub(super) async fn instantiate(&self, store: &mut Store<Ctx>) -> wasmtime::Result<Guest> {
        self.0.instantiate_async(store).await.map(Guest)
    }
}

/// A living instance.
pub(super) struct Guest(generated::Plugin);

impl Guest {
    pub(super) async fn describe(&self, store: &mut Store<Ctx>, taken: &mut Taken) -> Result<Descriptor, Fault> {
        let told = self.0.onceward_plugin_meta().call_describe(store).await?;
        output::descriptor(told, taken)
    }

    pub(super) async fn examine(
        &self,
        store: &mut Store<Ctx>,
        config: &str,
        taken: &mut Taken,
    ) -> Result<Result<Needs, Vec<ConfigFault>>, Fault> {
        let told = self.0.onceward_plugin_meta().call_examine_config(store, config).await?;
        output::examined(told, taken)
    }

    /// Passes the call's delivery to the guest.
    pub(super) async fn verify(&self, store: &mut Store<Ctx>, taken: &mut Taken) -> Result<Verdict, Fault> {
        let Some((grant, delivery)) = store.data().request.clone() else {
            return Err(Fault::Answer(FailureKind::Host, "a verify without a request".into()));
        };
        let headers = request::headers(&delivery.headers, &grant.needs.headers);
        let params = request::params(&delivery.params);
        let request = request::lower(&delivery, &params, &headers);
        let told = self.0.onceward_plugin_verifier().call_verify(store, request, &grant.config).await?;
        output::verdict(told, taken)
    }

    pub(super) async fn extract(&self, store: &mut Store<Ctx>, taken: &mut Taken) -> Result<Disposition, Fault> {
        let told = self.0.onceward_plugin_extractor().call_extract(store).await?;
        output::disposition(told, taken)
    }
}

/// A guest's call into the host.
type Caller<'a> = StoreContextMut<'a, Ctx>;
