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

// documents finds the document of a request that has only its hash. With trusted documents, no other document
// is executed. Otherwise clients register documents with automatic persisted queries (APQ). Each process
// keeps the most recently used ones, and asks for a document again if it does not have it.
type documents struct {
	trusted map[string]string          // by hash; nil: any document is executed
	texts   map[string]struct{}        // the texts in trusted
	kept    *lru.Cache[string, string] // texts for APQ, by hash; nil: no APQ
}

// persisted is a document to register.
type persisted struct{ hash, text string }

// hashOf returns the SHA-256 of a document in the form that clients send.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// size returns the memory that an entry takes in the cache, in bytes.
func (p persisted) size() int { return len(p.text) + 3*len(p.hash) + 200 }

func newDocuments(maxBytes int) *documents {
	if maxBytes == 0 {
		return &documents{}
	}
	return &documents{kept: lru.New[string, string](maxBytes)}
}

// newTrusted reads a file with a JSON object of hashes and documents, and adds the documents in anyway.
// Errors: the file cannot be read, a key is not the hash of its document, or a document is not valid.
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

// resolve sets the document of a request that has only its hash. register is set if the
// request has both and they match.
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

// resolveTrusted returns the trusted document of a request, found by its hash or by its text.
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

// register keeps a valid document. It does nothing for nil.
func (d *documents) register(p *persisted) {
	if p != nil {
		d.kept.Put(p.hash, p.text, p.size())
	}
}

// persistedHash reads extensions.persistedQuery. given is false if it is missing.
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
