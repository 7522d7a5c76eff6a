package password

import (
	"crypto/pbkdf2"
	"crypto/sha1" // hashes of other systems use it
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	gohash "hash"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/bcrypt"
	"golang.org/x/crypto/scrypt"

	"tideline/feed/refusal"
)

// Bounds of the cost of a stored hash. At each bound, verifying a password takes about a second
// of one processor.
const (
	maxHash         = 512       // length of a hash in bytes
	maxHashMemory   = 256 << 20 // bytes at once
	maxHashWork     = 1 << 30   // memory in bytes times passes, or times lanes for scrypt
	maxHashLanes    = 16
	maxPBKDF2Rounds = 2_000_000
	maxBcryptCost   = 14
	// minKey refuses a truncated hash, which would match many passwords.
	minKey, maxKey, maxSalt = 16, 64, 64
)

// storedHash is a parsed hash.
type storedHash struct {
	matches func(password string) (bool, error)
	current bool // Hash would use the same algorithm and parameters today
}

// CheckHash checks that a Hasher can verify passwords against a hash. It accepts argon2id,
// argon2i, scrypt and pbkdf2 (with SHA-1, SHA-256 or SHA-512) in the PHC string format and in
// passlib's format, and bcrypt. It refuses a hash that takes much more memory or time than new
// hashes. Error: BadInput.
//
// Cost: parsing only.
func CheckHash(text string) error {
	_, err := parse(text)
	return err
}

// parse parses a stored hash. Error: BadInput, as CheckHash.
func parse(text string) (*storedHash, error) {
	if len(text) > maxHash {
		return nil, refusal.New(refusal.BadHash, "A password hash has at most %d bytes.", maxHash)
	}
	if parts := strings.Split(text, "$"); len(parts) > 2 && parts[0] == "" {
		kind := parts[1]
		switch kind {
		case "argon2id", "argon2i":
			return parseArgon2(parts)
		case "scrypt":
			return parseScrypt(parts)
		case "2a", "2b", "2y":
			return parseBcrypt(text)
		}
		if newHash := pbkdf2Hashes[kind]; newHash != nil {
			return parsePBKDF2(newHash, parts)
		}
	}
	return nil, refusal.New(refusal.BadHash, "This is no password hash that can be checked: argon2id, argon2i, scrypt, pbkdf2, pbkdf2-sha256, pbkdf2-sha512 and bcrypt (2a, 2b, 2y) can.")
}

func badHash(kind string) error {
	return refusal.New(refusal.BadHash, "The password hash begins as one of %s, but is not one.", kind)
}

func dearHash(kind string) error {
	return refusal.New(refusal.BadHash, "The password hash of %s costs more than a log-in may.", kind)
}

func parseArgon2(parts []string) (*storedHash, error) {
	kind := parts[1]
	if len(parts) != 6 || parts[2] != "v=19" {
		return nil, badHash(kind)
	}
	spec, ok := numbers(parts[3], "m", "t", "p")
	salt, key, fine := saltAndKey(parts[4], parts[5])
	if !ok || !fine || len(salt) < 8 {
		return nil, badHash(kind)
	}
	memory, passes, lanes := spec[0], spec[1], spec[2]
	if passes < 1 || lanes < 1 || memory < 8*lanes {
		return nil, badHash(kind)
	}
	if lanes > maxHashLanes || memory > maxHashMemory>>10 || passes > maxHashWork || memory*passes > maxHashWork>>10 {
		return nil, dearHash(kind)
	}
	derive := argon2.Key
	if kind == "argon2id" {
		derive = argon2.IDKey
	}
	stored := keyed(key, func(password string) ([]byte, error) {
		return derive([]byte(password), salt, uint32(passes), uint32(memory), uint8(lanes), uint32(len(key))), nil
	})
	stored.current = kind == "argon2id" && passes == hashPasses && memory == hashMemory && lanes == hashLanes && len(salt) == saltLength && len(key) == keyLength
	return stored, nil
}

func parseScrypt(parts []string) (*storedHash, error) {
	if len(parts) != 5 {
		return nil, badHash("scrypt")
	}
	spec, ok := numbers(parts[2], "ln", "r", "p")
	salt, key, fine := saltAndKey(parts[3], parts[4])
	if !ok || !fine {
		return nil, badHash("scrypt")
	}
	logN, blocks, lanes := spec[0], spec[1], spec[2]
	if logN < 1 || blocks < 1 || lanes < 1 {
		return nil, badHash("scrypt")
	}
	if logN > 30 || blocks > 64 || lanes > maxHashLanes || 128*blocks<<logN > maxHashMemory || 128*blocks*lanes<<logN > maxHashWork {
		return nil, dearHash("scrypt")
	}
	return keyed(key, func(password string) ([]byte, error) {
		return scrypt.Key([]byte(password), salt, 1<<logN, int(blocks), int(lanes), len(key))
	}), nil
}

// pbkdf2Hashes maps the names of PBKDF2 variants to their hash functions.
var pbkdf2Hashes = map[string]func() gohash.Hash{
	"pbkdf2": sha1.New, "pbkdf2-sha1": sha1.New, "pbkdf2-sha256": sha256.New, "pbkdf2-sha512": sha512.New,
}

func parsePBKDF2(newHash func() gohash.Hash, parts []string) (*storedHash, error) {
	kind := parts[1]
	if len(parts) != 5 {
		return nil, badHash(kind)
	}
	// passlib writes $29000$; others write $i=29000$ or $i=29000,l=32$.
	rounds, length, long := strings.Cut(strings.TrimPrefix(parts[2], "i="), ",l=")
	n, ok := number(rounds)
	salt, key, fine := saltAndKey(parts[3], parts[4])
	if !ok || !fine || n < 1 || long && length != strconv.Itoa(len(key)) {
		return nil, badHash(kind)
	}
	if n > maxPBKDF2Rounds {
		return nil, dearHash(kind)
	}
	return keyed(key, func(password string) ([]byte, error) {
		return pbkdf2.Key(newHash, password, salt, int(n), len(key))
	}), nil
}

var bcryptForm = regexp.MustCompile(`^\$2[aby]\$[0-9]{2}\$[./A-Za-z0-9]{53}$`)

func parseBcrypt(text string) (*storedHash, error) {
	stored := []byte(text)
	if !bcryptForm.MatchString(text) {
		return nil, badHash("bcrypt")
	}
	switch cost, err := bcrypt.Cost(stored); {
	case err != nil:
		return nil, badHash("bcrypt")
	case cost > maxBcryptCost:
		return nil, dearHash("bcrypt")
	}
	return &storedHash{matches: func(password string) (bool, error) {
		return bcrypt.CompareHashAndPassword(stored, []byte(password)) == nil, nil
	}}, nil
}

// keyed returns a storedHash whose key is derived from the password.
func keyed(key []byte, derive func(password string) ([]byte, error)) *storedHash {
	return &storedHash{matches: func(password string) (bool, error) {
		derived, err := derive(password)
		return err == nil && subtle.ConstantTimeCompare(derived, key) == 1, err
	}}
}

// numbers parses "m=1,t=2,p=3".
func numbers(text string, names ...string) ([]int64, bool) {
	fields := strings.Split(text, ",")
	if len(fields) != len(names) {
		return nil, false
	}
	values := make([]int64, len(names))
	for i, field := range fields {
		value, named := strings.CutPrefix(field, names[i]+"=")
		n, ok := number(value)
		if !named || !ok {
			return nil, false
		}
		values[i] = n
	}
	return values, true
}

// number parses a decimal number of at most 31 bits, so that the product of two does not
// overflow.
func number(text string) (int64, bool) {
	n, err := strconv.ParseUint(text, 10, 31)
	return int64(n), err == nil
}

// saltAndKey decodes salt and key from base64, with or without padding. passlib writes . instead
// of +.
func saltAndKey(saltText, keyText string) (salt, key []byte, ok bool) {
	read := func(text string) []byte {
		raw, err := base64.RawStdEncoding.Strict().DecodeString(strings.ReplaceAll(strings.TrimRight(text, "="), ".", "+"))
		if err != nil {
			return nil
		}
		return raw
	}
	salt, key = read(saltText), read(keyText)
	return salt, key, salt != nil && len(salt) <= maxSalt && len(key) >= minKey && len(key) <= maxKey
}
