package password_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/feed/password"
	"tideline/feed/refusal"
)

// A hash that cannot be verified, or that would make a log-in take long, is refused.
func TestHashesThatAreRefused(t *testing.T) {
	t.Parallel()
	const saltAndKey = "$c29tZXNhbHQ$wWKIMhR9lyDFvRz9YTZwcHKfbftvj+qf+YFY4NeBbtA"
	for hash, says := range map[string]string{
		"":              "no password hash",
		"-":             "no password hash",
		"correct horse": "no password hash",
		"$1$salt$key":   "no password hash",
		"$argon2d$v=19$m=65536,t=2,p=1" + saltAndKey:                      "no password hash",
		"$argon2id$v=16$m=65536,t=2,p=1" + saltAndKey:                     "is not one",
		"$argon2id$v=19$m=65536,t=0,p=1" + saltAndKey:                     "is not one",
		"$argon2i$v=19$m=65536,t=2,p=0" + saltAndKey:                      "is not one",
		"$argon2i$v=19$m=-1,t=2,p=1" + saltAndKey:                         "is not one",
		"$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$wWKIMhR9":             "is not one",
		"$argon2id$v=19$m=262145,t=1,p=1" + saltAndKey:                    "costs more",
		"$argon2id$v=19$m=65536,t=17,p=1" + saltAndKey:                    "costs more",
		"$argon2i$v=19$m=1024,t=2147483647,p=1" + saltAndKey:              "costs more",
		"$argon2id$v=19$m=4096,t=1,p=255" + saltAndKey:                    "costs more",
		"$scrypt$ln=16,r=8" + saltAndKey:                                  "is not one",
		"$scrypt$ln=0,r=8,p=1" + saltAndKey:                               "is not one",
		"$scrypt$ln=20,r=8,p=1" + saltAndKey:                              "costs more",
		"$scrypt$ln=2000000000,r=2000000000,p=1" + saltAndKey:             "costs more",
		"$scrypt$ln=17,r=8,p=16" + saltAndKey:                             "costs more",
		"$pbkdf2-sha256$0" + saltAndKey:                                   "is not one",
		"$pbkdf2-sha256$i=1000,l=31" + saltAndKey:                         "is not one",
		"$pbkdf2-sha256$2000001" + saltAndKey:                             "costs more",
		"$2b$15$abcdefghijklmnopqrstuuKRze7BjvIHM2j/Mlifwl1ZipE2V9mZ.":    "costs more",
		"$2x$04$abcdefghijklmnopqrstuuKRze7BjvIHM2j/Mlifwl1ZipE2V9mZ.":    "no password hash",
		"$2b$04$abcdefghijklmnopqrstuuKRze7BjvIHM2j":                      "is not one",
		"$argon2id$v=19$m=65536,t=2,p=1$" + strings.Repeat("c29t", 200):   "at most 512 bytes",
		"$argon2id$v=19$m=65536,t=2,p=1" + saltAndKey + "\x00":            "is not one",
		"$pbkdf2-sha256$1000$" + strings.Repeat("c29t", 40) + "$wWKIMhR9": "is not one",
	} {
		err := password.CheckHash(hash)
		require.Equal(t, refusal.BadInput, refusal.CodeOf(err), hash)
		require.ErrorContains(t, err, says, hash)
	}
}
