package transport

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/vektah/gqlparser/v2/gqlerror"

	"tideline/graph/exec"
	"tideline/internal/lru"
)

// documents turns the hash that a request may bring into the text of the document.
// With trusted documents no other document is executed. Else clients register
// what they send by automatic persisted queries (APQ): each process keeps the most
// recently used documents, and asks for one again when it does not have it.
type documents struct {
	trusted map[string]string          // by hash; nil: any document
	texts   map[string]struct{}        // of trusted
	kept    *lru.Cache[string, string] // texts for APQ, by hash; nil: no APQ
}

// persisted is a document that a client registers.
type persisted struct{ hash, text string }

// hashOf is the SHA-256 of a document, as clients send it.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// size is how many bytes of memory an entry takes, with its places in the cache.
func (p persisted) size() int { return len(p.text) + 3*len(p.hash) + 200 }

func newDocuments(maxBytes int) *documents {
	if maxBytes == 0 {
		return &documents{}
	}
	return &documents{kept: lru.New[string, string](maxBytes)}
}

// newTrusted reads a file with a JSON object of hash and document, and adds those that are
// trusted anyway. Errors: it cannot be read, it has a key that is not the hash of its
// document, or a document that could not be executed.
func newTrusted(ctx context.Context, file string, anyway map[string]string, engine *exec.Engine) (*documents, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("trusted documents: %w", err)
	}
	d := &documents{texts: make(map[string]struct{})}
	if err := json.Unmarshal(data, &d.trusted); err != nil {
		return nil, fmt.Errorf("trusted documents: %s is not a JSON object of hash and document: %w", file, err)
	}
	if d.trusted == nil {
		return nil, fmt.Errorf("trusted documents: %s is null, and not a JSON object of hash and document", file)
	}
	for hash, text := range d.trusted {
		if sum := hashOf(text); hash != sum {
			return nil, fmt.Errorf("trusted documents: %s, document %s: the key must be the SHA-256 of the document in lower-case hexadecimal, %s", file, hash, sum)
		}
		if errs := engine.Check(ctx, text); len(errs) > 0 {
			return nil, fmt.Errorf("trusted documents: %s, document %s: %w", file, hash, errs)
		}
		d.texts[text] = struct{}{}
	}
	for hash, text := range anyway {
		d.trusted[hash], d.texts[text] = text, struct{}{}
	}
	return d, nil
}

// resolve puts the text into a request that has none. register is set when the
// request brought both and they belong together.
func (d *documents) resolve(r exec.Request) (resolved exec.Request, register *persisted, errs gqlerror.List) {
	hash, given, err := persistedHash(r.Extensions)
	switch {
	case err != nil:
		return r, nil, requestError(codeBadInput, "%v", err)
	case d.trusted != nil:
		r.Query, errs = d.resolveTrusted(r.Query, hash, given)
		return r, nil, errs
	case d.kept == nil && given && r.Query == "":
		return r, nil, requestError(codePersistNotSupported, "PersistedQueryNotSupported")
	case d.kept == nil, !given:
		return r, nil, nil
	}
	if r.Query != "" {
		if hashOf(r.Query) != hash {
			return r, nil, requestError(codeBadInput, "The sha256Hash is not that of the document.")
		}
		return r, &persisted{hash, r.Query}, nil
	}
	text, ok := d.kept.Get(hash)
	if !ok {
		return r, nil, requestError(codeNotPersisted, "PersistedQueryNotFound")
	}
	r.Query = text
	return r, nil, nil
}

// resolveTrusted is the trusted document of a request by its hash, or by its text.
func (d *documents) resolveTrusted(query, hash string, given bool) (string, gqlerror.List) {
	if !given {
		if _, ok := d.texts[query]; !ok {
			return query, requestError(codeUntrusted, "This server executes a fixed list of documents: send the sha256Hash of one as extensions.persistedQuery.")
		}
		return query, nil
	}
	text, ok := d.trusted[hash]
	if !ok || query != "" && query != text {
		return query, requestError(codeUntrusted, "This server executes a fixed list of documents, and that one is not on it.")
	}
	return text, nil
}

// register keeps a document that has been found valid; nil is none.
func (d *documents) register(p *persisted) {
	if p != nil {
		d.kept.Put(p.hash, p.text, p.size())
	}
}

// persistedHash reads extensions.persistedQuery; given is false without one.
func persistedHash(extensions map[string]any) (hash string, given bool, err error) {
	value := extensions["persistedQuery"]
	if value == nil {
		return "", false, nil
	}
	object, ok := value.(map[string]any)
	if !ok {
		return "", false, errors.New("extensions.persistedQuery must be an object")
	}
	if version := fmt.Sprint(object["version"]); version != "1" {
		return "", false, errors.New("extensions.persistedQuery.version must be 1")
	}
	hash, ok = object["sha256Hash"].(string)
	if !ok || hash == "" || len(hash) > 128 {
		return "", false, errors.New("extensions.persistedQuery.sha256Hash must be the document's SHA-256 in lower-case hexadecimal")
	}
	return hash, true, nil
}
