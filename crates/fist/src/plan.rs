//! Which code of an extension goes where: into functions of the file system, or around them.
//!
//! A handler that the file system defines gets the code in place. A handler of the kernel's own, one
//! that is replaced, and one that serves entries of different names get a function around them, which
//! takes their place in the vector.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};
use crate::extension::{Addition, Code, Extension, Rule, Target, When};
use crate::faults::{Fault, planted};
use crate::initialiser::{Entry, FILE_SYSTEM, Handler, Initialiser, VECTORS};
use crate::kernel::{Kernel, Operation, mismatch};
use crate::source::Source;

/// A function by the numbers of its source and within it.
pub(crate) type Place = (usize, usize);

/// What is to be done.
#[derive(Debug, Default)]
pub(crate) struct Plan<'e> {
    pub(crate) in_place: BTreeMap<Place, Hooks<'e>>,
    pub(crate) wrappers: Vec<Wrapper<'e>>,
}

/// Code for one function.
#[derive(Debug, Default, Clone)]
pub(crate) struct Hooks<'e> {
    /// What `%op` is there.
    pub(crate) operation: String,
    pub(crate) before: Vec<&'e Code>,
    pub(crate) after: Vec<&'e Code>,
    pub(crate) instead: Option<&'e Code>,
}

/// A function around a handler, or in the place of one that is not there.
#[derive(Debug)]
pub(crate) struct Wrapper<'e> {
    /// Of the vector: source, and initialiser in it.
    pub(crate) vector: Place,
    /// The entry in the vector; none if it is added.
    pub(crate) entry: Option<usize>,
    pub(crate) operation: Operation,
    /// The function that is called.
    pub(crate) handler: Option<String>,
    /// The code of an addition.
    pub(crate) addition: Option<&'e Code>,
    pub(crate) hooks: Hooks<'e>,
}

impl Hooks<'_> {
    fn is_empty(&self) -> bool {
        self.before.is_empty() && self.after.is_empty() && self.instead.is_none()
    }
}

/// Decides what goes where.
///
/// # Errors
/// If something cannot be done safely, with its place and a remedy.
pub(crate) fn plan<'e>(
    sources: &[Source],
    extension: &'e Extension,
    kernel: &Kernel,
) -> Result<Plan<'e>> {
    let this = Planner { sources, extension, kernel };
    this.known_operations()?;
    let mut plan = Plan::default();
    let of_operations =
        extension.rules.iter().any(|rule| !matches!(rule.target, Target::Function(..)));
    if of_operations || !extension.additions.is_empty() {
        this.vectors_are_plain()?;
        this.operations(&mut plan)?;
        this.additions(&mut plan)?;
    }
    this.functions(&mut plan)?;
    Ok(plan)
}

struct Planner<'a, 'e> {
    sources: &'a [Source],
    extension: &'e Extension,
    kernel: &'a Kernel,
}

impl<'e> Planner<'_, 'e> {
    /// Operations and entries that rules name are some.
    fn known_operations(&self) -> Result<()> {
        let unknown = |range, name: &str, what: &str| {
            let near = self
                .kernel
                .nearest(name)
                .map_or(String::new(), |near| format!("; is {near} meant?"));
            let header = self.kernel.header.display();
            self.extension.refuse(range, format!("{what} {name}{near}")).with_remedy(format!(
                "operations are the entries of vectors in {header}, and groups"
            ))
        };
        for rule in &self.extension.rules {
            if let Target::Operation(name) = &rule.target
                && !self.kernel.has_operation(name)
            {
                return Err(unknown(&rule.range, name, "there is no operation"));
            }
        }
        for Addition { type_name, entry, range, .. } in &self.extension.additions {
            if self.kernel.operation(type_name, entry).is_none() {
                return Err(unknown(range, entry, &format!("struct {type_name} has no entry")));
            }
        }
        Ok(())
    }

    /// Every vector is there when the module is compiled, and says what belongs where.
    fn vectors_are_plain(&self) -> Result<()> {
        for source in self.sources {
            if let Some(range) = source.hidden_vector(&VECTORS) {
                let cause =
                    "this vector has no declaration of its own, so its handlers are not known";
                return Err(source
                    .refuse(&range, cause)
                    .with_remedy("declare it as `struct TYPE NAME = {...}`, and point to it"));
            }
        }
        let initialised = |name: &str| {
            let mut all = self.sources.iter().flat_map(|source| &source.initialisers);
            all.any(|found| found.name == name || found.name.starts_with(&format!("{name}[")))
        };
        for source in self.sources {
            for bare in source.bare.iter().filter(|bare| bare.type_name != FILE_SYSTEM) {
                if bare.is_inner
                    || !initialised(bare.name.trim_end_matches(|c| c != '[').trim_end_matches('['))
                        && !initialised(&bare.name)
                {
                    return Err(built_at_run_time(source, &bare.range, &bare.name));
                }
            }
            for vector in source.initialisers.iter().filter(|found| found.is_vector()) {
                if vector.is_local {
                    let cause = format!("the vector {} is a variable of a function", vector.name);
                    return Err(source
                        .refuse(&vector.range, cause)
                        .with_remedy("move it out of the function, before it"));
                }
                if let Some(range) = &vector.positional {
                    return Err(source
                        .refuse(range, "this entry of a vector does not say which one it is")
                        .with_remedy("write it as `.entry = function`"));
                }
                self.not_assigned(vector)?;
            }
        }
        Ok(())
    }

    /// No entry of a vector is set while the module runs.
    fn not_assigned(&self, vector: &Initialiser) -> Result<()> {
        for source in self.sources {
            let tokens = &source.tokens;
            for (at, token) in tokens.iter().enumerate() {
                let set = token.is_word(&source.bytes, &vector.name)
                    && tokens.get(at + 1).is_some_and(|t| t.is(b'.'))
                    && tokens.get(at + 3).is_some_and(|t| t.is(b'='))
                    && tokens.get(at + 4).is_some_and(|t| !t.is(b'='));
                if set {
                    let range = token.start..tokens[at + 2].end;
                    return Err(built_at_run_time(source, &range, &vector.name));
                }
            }
        }
        Ok(())
    }

    /// The code for an operation, in the order of the rules.
    fn hooks(&self, operation: &str) -> Result<Hooks<'e>> {
        let mut hooks = Hooks { operation: operation.to_owned(), ..Hooks::default() };
        for rule in self.extension.rules.iter().filter(|rule| rule.target.covers(operation)) {
            hooks.take(self.extension, rule)?;
        }
        Ok(hooks)
    }

    fn operations(&self, plan: &mut Plan<'e>) -> Result<()> {
        let mut names: BTreeMap<Place, BTreeSet<&str>> = BTreeMap::new();
        let mut found = Vec::new();
        for (number, source) in self.sources.iter().enumerate() {
            for (index, vector) in
                source.initialisers.iter().enumerate().filter(|(_, v)| v.is_vector())
            {
                for (at, entry) in vector.entries.iter().enumerate() {
                    let hooks = self.hooks(&entry.field)?;
                    if hooks.is_empty() || entry.handler == Handler::None {
                        continue;
                    }
                    let Some((operation, handler)) = self.handler(source, vector, entry)? else {
                        continue;
                    };
                    let own = self.definitions(number, handler);
                    for place in &own {
                        names.entry(*place).or_default().insert(&entry.field);
                    }
                    found.push(((number, index), at, operation, handler, own, hooks));
                }
            }
        }
        for (vector, at, operation, handler, own, hooks) in found {
            let (source, index) = vector;
            let shared = own.iter().any(|place| names[place].len() > 1);
            if own.is_empty() {
                self.is_no_macro(
                    &self.sources[source],
                    &self.sources[source].initialisers[index].entries[at],
                )?;
                if planted(Fault::GenericUnwrapped) {
                    continue;
                }
            }
            if own.is_empty() || shared || hooks.instead.is_some() {
                let handler = Some(handler.to_owned());
                plan.wrappers.push(Wrapper {
                    vector,
                    entry: Some(at),
                    operation: operation.clone(),
                    handler,
                    addition: None,
                    hooks,
                });
                continue;
            }
            for place in own {
                self.fits(place, operation)?;
                plan.in_place.entry(place).or_insert_with(|| hooks.clone());
            }
        }
        Ok(())
    }

    /// The handler of an entry, and what the kernel's header says of it; none if it is no function.
    fn handler<'s>(
        &self,
        source: &Source,
        vector: &Initialiser,
        entry: &'s Entry,
    ) -> Result<Option<(&Operation, &'s str)>> {
        let Handler::Named(handler) = &entry.handler else {
            let cause = format!("the handler of {} is not a name but an expression", entry.field);
            return Err(source
                .refuse(&entry.value, cause)
                .with_remedy("write a function that does this, and name it here"));
        };
        if self.kernel.is_null(handler) {
            return Ok(None);
        }
        let operation =
            self.kernel.operation(&vector.type_name, &entry.field).ok_or_else(|| {
                let what = format!("struct {} has no entry {}", vector.type_name, entry.field);
                mismatch(self.kernel, source, &entry.range, &what)
            })?;
        Ok(Some((operation, handler)))
    }

    /// Where a name is defined as a function: in the same file, else wherever others can call it.
    fn definitions(&self, number: usize, name: &str) -> Vec<Place> {
        let of = |number: usize| {
            let functions = self.sources[number].functions.iter().enumerate();
            functions.filter(|(_, f)| f.name == name).map(move |(index, f)| ((number, index), f))
        };
        let here: Vec<Place> = of(number).map(|(place, _)| place).collect();
        if !here.is_empty() {
            return here;
        }
        let is_header =
            |number: usize| self.sources[number].path.extension().is_some_and(|e| e == "h");
        (0..self.sources.len())
            .flat_map(of)
            .filter(|((number, _), function)| !function.is_static || is_header(*number))
            .map(|(place, _)| place)
            .collect()
    }

    fn is_no_macro(&self, source: &Source, entry: &Entry) -> Result<()> {
        let Handler::Named(name) = &entry.handler else { return Ok(()) };
        let defined = self.sources.iter().any(|source| {
            source
                .directives()
                .any(|(_, words)| matches!(&words[..], ["define", defined, ..] if defined == name))
        });
        if defined {
            return Err(source
                .refuse(&entry.value, format!("the handler {name} is a macro"))
                .with_remedy("name the function that it stands for"));
        }
        Ok(())
    }

    /// The function has the signature that the kernel's header gives it.
    fn fits(&self, (number, index): Place, operation: &Operation) -> Result<()> {
        let source = &self.sources[number];
        let function = &source.functions[index];
        match operation.differs(&function.parameters) {
            None => Ok(()),
            Some(how) => {
                let what = format!("{} {how} for {}", function.name, operation.name);
                Err(mismatch(self.kernel, source, &function.name_range, &what))
            }
        }
    }

    fn additions(&self, plan: &mut Plan<'e>) -> Result<()> {
        for addition in &self.extension.additions {
            let Some(operation) = self.kernel.operation(&addition.type_name, &addition.entry)
            else {
                continue;
            };
            for (number, source) in self.sources.iter().enumerate() {
                for (index, vector) in source.initialisers.iter().enumerate() {
                    if vector.type_name != addition.type_name
                        || vector.entry(&addition.entry).is_some()
                    {
                        continue;
                    }
                    let hooks = self.hooks(&addition.entry)?;
                    if hooks.instead.is_some() {
                        return Err(self
                            .extension
                            .refuse(
                                &addition.range,
                                format!("{} is added and replaced", addition.entry),
                            )
                            .with_remedy("put the code of both into %add"));
                    }
                    plan.wrappers.push(Wrapper {
                        vector: (number, index),
                        entry: None,
                        operation: operation.clone(),
                        handler: None,
                        addition: Some(&addition.code),
                        hooks,
                    });
                }
            }
        }
        Ok(())
    }

    fn functions(&self, plan: &mut Plan<'e>) -> Result<()> {
        for rule in &self.extension.rules {
            let Target::Function(name, may_lack) = &rule.target else { continue };
            let mut places = Vec::new();
            for (number, source) in self.sources.iter().enumerate() {
                let functions = source.functions.iter().enumerate();
                places.extend(
                    functions.filter(|(_, f)| f.name == *name).map(|(index, _)| (number, index)),
                );
            }
            if places.is_empty() && !may_lack {
                return Err(self
                    .extension
                    .refuse(&rule.range, format!("the file system has no function {name}"))
                    .with_remedy(format!(
                        "check the name, or write {name}? if it may be missing"
                    )));
            }
            for place in places {
                let hooks = plan
                    .in_place
                    .entry(place)
                    .or_insert_with(|| Hooks { operation: name.clone(), ..Hooks::default() });
                hooks.take(self.extension, rule)?;
            }
        }
        Ok(())
    }
}

impl<'e> Hooks<'e> {
    fn take(&mut self, extension: &Extension, rule: &'e Rule) -> Result<()> {
        match rule.when {
            When::Precall => self.before.push(&rule.code),
            When::Postcall => self.after.push(&rule.code),
            When::Call if self.instead.is_some() => {
                return Err(extension
                    .refuse(&rule.range, format!("{} is replaced twice", self.operation))
                    .with_remedy("keep one rule with call for each operation"));
            }
            When::Call => self.instead = Some(&rule.code),
        }
        Ok(())
    }
}

fn built_at_run_time(source: &Source, range: &std::ops::Range<usize>, name: &str) -> Error {
    source
        .refuse(
            range,
            format!("the vector {name} is built at run time, so its handlers are not known"),
        )
        .with_remedy("write it as a structure with `.entry = function`, and point to it")
}
