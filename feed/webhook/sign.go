package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// secretPrefix begins the text of a secret, as the Standard Webhooks specification requires.
const secretPrefix = "whsec_"

// secret is a signing key that is valid until a given time.
type secret struct {
	Text  string `json:"secret"`
	Until int64  `json:"until,omitempty"` // Unix milliseconds; 0 means until it is replaced
}

// newSecret returns the text of a new secret of 32 random bytes.
func newSecret() string {
	raw := make([]byte, 32)
	rand.Read(raw)
	return secretPrefix + base64.StdEncoding.EncodeToString(raw)
}

// parseSecrets reads the column secrets.
func parseSecrets(text string) (list []secret, err error) {
	if err = json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("read secrets: %w", err)
	}
	return list, nil
}

// sign returns the header webhook-signature, with a signature for each secret in force.
func sign(secrets []secret, message string, at time.Time, body []byte) (string, error) {
	var signatures []string
	for _, s := range secrets {
		if s.Until != 0 && s.Until <= at.UnixMilli() {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s.Text, secretPrefix))
		if err != nil {
			return "", fmt.Errorf("read secret: %w", err)
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(message + "." + strconv.FormatInt(at.Unix(), 10) + "."))
		mac.Write(body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	if len(signatures) == 0 {
		return "", errors.New("the endpoint has no secret")
	}
	return strings.Join(signatures, " "), nil
}
