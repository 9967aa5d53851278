//! `tacita oram check`, `status` and `plan`.

use serde_json::{Value, json};
use tacita_oram::link::Address;
use tacita_oram::{Access, AnchorAt, Options, Store, Way};

use super::{anchor_of, failure, geometry_of, open};
use crate::arguments::{OramClient, Shapes};
use crate::exit::{self, Failure, Outcome};
use crate::output::{self, shown_name};

pub(super) fn check(address: &Address, client: &OramClient, json: bool) -> Outcome<()> {
    let store = open(&Way::Server(address.clone()), client, &looking())?;
    let bar = output::progress("reading", 0);
    let item_len = store.geometry().item_len() as u64;
    let checked = store.check(&mut |read, of| {
        bar.set_length(of * item_len);
        bar.set_position(read * item_len);
    });
    bar.finish_and_clear();
    let checked = checked.map_err(|e| failure(&e))?;
    let facts = json!({
        "queries": store.status().map_err(|e| failure(&e))?.queries,
        "generations": checked.generations,
        "items": checked.items,
        "filter_pages": checked.pages,
        "compared_with_anchor": checked.compared,
        "damage": checked.damage,
    });
    output::facts(json, &facts, &output::lines(&facts))?;
    if !checked.compared {
        output::say(&format!(
            "tacita: {}: no anchor that remembers this store: its log was compared with nothing, and a store that was \
             set back looks the same",
            shown_anchor(&anchor_of(client)?)
        ));
    }
    match checked.damage.len() {
        0 => Ok(()),
        count => Err(Failure::new(exit::WRONG, format!("{count} objects are not what was sealed"))
            .with_remedy("restore the store's newest state from a backup")),
    }
}

pub(super) fn status(way: &Way, client: &OramClient, json: bool) -> Outcome<()> {
    let store = open(way, client, &looking())?;
    let facts = of_store(&store).map_err(|e| failure(&e))?;
    output::facts(json, &facts, &output::lines(&facts))
}

fn shown_anchor(anchor: &AnchorAt) -> String {
    match anchor {
        AnchorAt::File(file) => shown_name(file),
        AnchorAt::Shared(place) => shown_name(place.to_string()),
    }
}

fn looking() -> Options {
    Options { access: Access::Look, ..Options::default() }
}

/// Facts of an open store.
pub(super) fn of_store(store: &Store) -> tacita_oram::Result<Value> {
    let geometry = store.geometry();
    let status = store.status()?;
    let builds: Vec<Value> = status
        .builds
        .iter()
        .map(|build| {
            json!({
                "level": build.generation.level,
                "number": build.generation.number,
                "reported": build.reported,
                "enforced": build.enforced,
            })
        })
        .collect();
    Ok(json!({
        "blocks": geometry.capacity(),
        "block_bytes": geometry.block_len(),
        "levels": geometry.levels(),
        "growth": geometry.growth(),
        "blocks_present": status.present,
        "queries": status.queries,
        "builds": builds,
    }))
}

pub(super) fn plan(shapes: &Shapes, json: bool) -> Outcome<()> {
    let geometry = geometry_of(shapes)?;
    let plan = tacita_oram::plan::plan(&geometry);
    let facts = json!({
        "content_bytes": geometry.capacity() * geometry.block_len() as u64,
        "levels": plan.levels,
        "generations": plan.generations,
        "round_trips": plan.round_trips,
        "query_bytes": plan.query_bytes,
        "build_bytes_per_query": plan.build_bytes,
        "server_bytes": plan.server_bytes,
        "client_bytes": plan.client_bytes,
    });
    output::facts(json, &facts, &output::lines(&facts))
}
