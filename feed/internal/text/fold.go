package text

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Fold returns s in the form in which handles and tags are compared. It applies Unicode's NFKC, so
// that wide, narrow and composed letters are the same, and case folding, in all scripts and
// independent of the language. It removes the characters that Ignored reports. Runs of white space
// become one space, and none is left at the ends. Invalid UTF-8 becomes U+FFFD. Fold(Fold(s)) is
// Fold(s).
//
// A folded text may have more characters than s, up to 18 for one, so lengths are checked after
// folding.
//
// Cost: one pass without allocation for lower-case ASCII; else several passes.
func Fold(s string) string { return fold(s, false) }

// FoldPhrase is Fold for texts that people type in more than one way: names, muted words, and
// queries for either. It also replaces the apostrophes, quotation marks and hyphens that keyboards
// insert by themselves with the ASCII characters.
func FoldPhrase(s string) string { return fold(s, true) }

func fold(s string, typed bool) string {
	if !isASCII(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
		// NFKC produces characters that fold, and folding produces sequences that NFKC composes.
		// Two rounds are enough for all of Unicode except a few sequences of marks.
		for range 4 {
			// The folding of x/text turns small letters of Cherokee into capitals, and capitals
			// into small letters.
			next := norm.NFKC.String(strings.Map(keep(typed), strings.ToLower(cases.Fold().String(norm.NFKC.String(s)))))
			if next == s {
				break
			}
			s = next
		}
	}
	return strings.Join(strings.Fields(strings.ToLower(s)), " ")
}

// Unaccented returns a folded text without the accents and strokes of Latin, Greek and Cyrillic letters,
// which many people leave out when they look for a name.
func Unaccented(folded string) string {
	if isASCII(folded) {
		return folded
	}
	marks := func(r rune) rune {
		if '\u0300' <= r && r <= '\u036F' {
			return -1
		}
		return r
	}
	return strokes.Replace(norm.NFC.String(strings.Map(marks, norm.NFD.String(folded))))
}

// strokes replaces the letters that Unicode does not decompose.
var strokes = strings.NewReplacer("ł", "l", "ø", "o", "đ", "d", "ı", "i", "æ", "ae", "œ", "oe")

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// keep returns the mapping of fold, which drops ignored characters.
func keep(typed bool) func(rune) rune {
	return func(r rune) rune {
		switch {
		case Ignored(r):
			return -1
		case r == blank:
			return ' '
		case typed:
			return ascii(r)
		}
		return r
	}
}

// ascii returns the ASCII character that keyboards often replace with r.
func ascii(r rune) rune {
	switch r {
	case '‘', '’', '‛', '′', 'ʼ', '׳':
		return '\''
	case '“', '”', '‟', '″', '״':
		return '"'
	case '‐', '‒', '–', '−':
		return '-'
	}
	return r
}

// blank is the braille pattern without dots, which looks like a space.
const blank = '\u2800'

// Ignored reports whether a character shows nothing by itself and makes no difference when texts
// are compared: joiners, soft hyphens, variation selectors, fillers and controls of direction. They
// are Unicode's Default_Ignorable_Code_Point and the annotation characters.
func Ignored(r rune) bool {
	switch {
	case r < 0xAD:
		return false
	case unicode.Is(unicode.Cf, r):
		// These have a shape of their own.
		return !unicode.Is(unicode.Prepended_Concatenation_Mark, r) && (r < 0x13430 || r > 0x1345F)
	}
	return unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Visible reports whether a text shows anything.
func Visible(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsSpace(r) && !unicode.IsControl(r) && !Ignored(r) && r != blank
	})
}

// Turns reports whether a character changes the direction of the text behind it. These are
// embeddings, overrides and isolates, which may reach beyond the field that contains them.
func Turns(r rune) bool { return r >= '\u202A' && r <= '\u202E' || r >= '\u2066' && r <= '\u2069' }
