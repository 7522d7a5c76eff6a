package server

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/vektah/gqlparser/v2/gqlerror"

	"tideline/graph/exec"
)

// The codes of persisted queries. PERSISTED_QUERY_NOT_FOUND is what clients
// answer by sending the document as well.
const (
	codeNotPersisted        = "PERSISTED_QUERY_NOT_FOUND"
	codePersistNotSupported = exec.CodePersistedNotSupported
	codeUntrusted           = "DOCUMENT_NOT_TRUSTED"
)

// documents turns the hash of a document, which a request may bring instead of
// it, into its text. Either trusted is set, and no other document is executed,
// or clients register what they send by automatic persisted queries (APQ): each
// process keeps the most recently used, and asks for a document again when it
// has not seen it.
type documents struct {
	trusted map[string]string   // by hash
	texts   map[string]struct{} // of trusted
	max     int                 // bytes kept for APQ; 0: no APQ

	mu    sync.Mutex
	used  int
	order *list.List // of persisted, most recent first
	kept  map[string]*list.Element
}

type persisted struct{ hash, text string }

// size is what an entry takes in memory, with its places in map and list.
func (p persisted) size() int { return len(p.text) + 3*len(p.hash) + 200 }

func newDocuments(maxBytes int) *documents {
	return &documents{max: maxBytes, order: list.New(), kept: make(map[string]*list.Element)}
}

// newTrusted reads a file with a JSON object of hash and document. Errors: it
// cannot be read, or it has a document that could not be executed.
func newTrusted(ctx context.Context, file string, engine *exec.Engine) (*documents, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("trusted documents: %w", err)
	}
	d := &documents{texts: make(map[string]struct{})}
	if err := json.Unmarshal(data, &d.trusted); err != nil {
		return nil, fmt.Errorf("trusted documents: %s is not a JSON object of hash and document: %w", file, err)
	}
	for hash, text := range d.trusted {
		if errs := engine.Check(ctx, text); len(errs) > 0 {
			return nil, fmt.Errorf("trusted documents: %s, document %s: %w", file, hash, errs)
		}
		d.texts[text] = struct{}{}
	}
	return d, nil
}

// resolve puts the text into a request that has none. register is set when the
// request brought both and they belong together.
func (d *documents) resolve(r exec.Request) (resolved exec.Request, register *persisted, errs gqlerror.List) {
	hash, given, err := persistedHash(r.Extensions)
	if err != nil {
		return r, nil, refusalOf(codeBadInput, "%v", err)
	}
	if d == nil || d.trusted == nil && d.max == 0 {
		if given && r.Query == "" {
			return r, nil, refusalOf(codePersistNotSupported, "PersistedQueryNotSupported")
		}
		return r, nil, nil
	}
	if d.trusted != nil {
		if given {
			text, ok := d.trusted[hash]
			if !ok || r.Query != "" && r.Query != text {
				return r, nil, refusalOf(codeUntrusted, "This server executes a fixed list of documents, and that one is not on it.")
			}
			r.Query = text
		} else if _, ok := d.texts[r.Query]; !ok {
			return r, nil, refusalOf(codeUntrusted, "This server executes a fixed list of documents: send the sha256Hash of one as extensions.persistedQuery.")
		}
		return r, nil, nil
	}
	if !given {
		return r, nil, nil
	}
	if r.Query != "" {
		sum := sha256.Sum256([]byte(r.Query))
		if hex.EncodeToString(sum[:]) != hash {
			return r, nil, refusalOf(codeBadInput, "The sha256Hash is not that of the document.")
		}
		return r, &persisted{hash, r.Query}, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	found := d.kept[hash]
	if found == nil {
		return r, nil, refusalOf(codeNotPersisted, "PersistedQueryNotFound")
	}
	d.order.MoveToFront(found)
	r.Query = found.Value.(persisted).text
	return r, nil, nil
}

// keep remembers a document that has been found valid; nil is nothing to keep.
func (d *documents) keep(p *persisted) {
	if p == nil || p.size() > d.max {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kept[p.hash] != nil {
		return
	}
	d.kept[p.hash] = d.order.PushFront(*p)
	for d.used += p.size(); d.used > d.max; {
		oldest := d.order.Remove(d.order.Back()).(persisted)
		delete(d.kept, oldest.hash)
		d.used -= oldest.size()
	}
}

// persistedHash reads extensions.persistedQuery, which only we look at.
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
