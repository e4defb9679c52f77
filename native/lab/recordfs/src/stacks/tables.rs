//! What is known of the frames of modules, by whichever of their tables tells it.

use std::collections::HashMap;
use std::sync::Arc;

use super::address_space::AddressSpace;
use super::go::Go;
use super::rules::{Rule, Rules};
use super::symbols::Source;
use super::Module;

/// Modules whose tables are kept.
const MOST: usize = 1024;

#[derive(Default)]
pub struct Tables {
    /// Of modules with a build id; who has the same runs the same file.
    rules: HashMap<Module, Arc<Rules>>,
    go: HashMap<Module, Option<Arc<Go>>>,
    /// The mount's own device: reading a file there would ask us.
    own_device: Option<(u32, u32)>,
}

impl Tables {
    pub fn new(own_device: Option<(u32, u32)>) -> Tables {
        Tables { own_device, ..Tables::default() }
    }

    /// What is known of an address in the file of a module.
    pub fn find(
        &mut self,
        space: &mut AddressSpace,
        module: usize,
        offset: u64,
        is_innermost: bool,
    ) -> Option<Rule> {
        if Some(space.modules.get(module)?.device) == self.own_device {
            return None;
        }
        let rules = self.rules_of(space, module);
        let rule = rules.and_then(|rules| rules.find(space, module, offset, is_innermost));
        if rule.is_some_and(|rule| rule.unwind.is_some()) {
            return rule;
        }
        let go = self.go_of(space, module);
        go.and_then(|go| go.find(space, offset, is_innermost)).or(rule)
    }

    /// What the program itself says of the call before an address.
    pub fn sources(&self, space: &AddressSpace, module: usize, offset: u64) -> Option<Vec<Source>> {
        space.modules.get(module)?.go.clone()??.sources(space, offset)
    }

    fn rules_of(&mut self, space: &mut AddressSpace, at: usize) -> Option<Arc<Rules>> {
        let module = space.modules.get_mut(at)?;
        if module.rules.is_none() {
            let known = self.rules.get(&module.named).filter(|_| !module.named.build_id.is_empty());
            let rules = match known {
                Some(rules) => rules.clone(),
                None => Arc::new(Rules::read(&space.files.memory, module)?),
            };
            if !module.named.build_id.is_empty() && self.rules.len() < MOST {
                self.rules.insert(module.named.clone(), rules.clone());
            }
            module.rules = Some(rules);
        }
        module.rules.clone()
    }

    fn go_of(&mut self, space: &mut AddressSpace, at: usize) -> Option<Arc<Go>> {
        let module = space.modules.get(at)?;
        if let Some(go) = &module.go {
            return go.clone();
        }
        let (named, bias) = (module.named.clone(), module.bias);
        // Addresses stand in the table: it is of a module where that lies.
        let is_same = |go: &&Option<Arc<Go>>| go.as_ref().is_none_or(|go| go.bias == bias);
        let known = self.go.get(&named).filter(is_same).cloned();
        let go = known.unwrap_or_else(|| Go::read(space, module).map(Arc::new));
        if !named.build_id.is_empty() && self.go.len() < MOST {
            self.go.insert(named, go.clone());
        }
        if let Some(module) = space.modules.get_mut(at) {
            module.go = Some(go.clone());
        }
        go
    }
}
