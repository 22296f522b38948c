//! Words: strings that many objects share, kept once and compared as numbers.

use crate::{cluster::name_table::NameTable, ids::Word};

/// All words seen so far. Words are never forgotten: there are few of them compared to the objects that use them.
#[derive(Clone, Debug, Default)]
pub struct Words {
    texts: Vec<Box<str>>,
    known: NameTable,
}

impl Words {
    /// The word of a text, made if it is new.
    pub fn intern(&mut self, text: &str) -> Word {
        if let Some(word) = self.find(text) {
            return word;
        }
        let word = Word::of(self.texts.len());
        self.texts.push(text.into());
        self.known.insert(text, word.0, |word| &self.texts[word as usize]);
        word
    }

    /// The word of a text that some object has used.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<Word> {
        self.known.find(text, |word| &self.texts[word as usize]).map(Word)
    }

    /// The text of a word.
    #[must_use]
    pub fn text(&self, word: Word) -> &str {
        self.texts.get(word.index()).map_or("", |text| text)
    }
}
