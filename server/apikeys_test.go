package server

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"tideline/feed/apikey"
	"tideline/server/backend"
	"tideline/server/internal/servertest"
)

// askFor makes a request with a key or a token. A key acts for a user unless actAs is empty.
func askFor(t *testing.T, url, key, actAs, query string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/graphql", strings.NewReader(`{"query":"`+query+`"}`))
	require.NoError(t, err)
	r.Header.Set("Content-Type", servertest.AsJSON)
	r.Header.Set("Authorization", "Bearer "+key)
	if actAs != "" {
		r.Header.Set("Tideline-Act-As", actAs)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(data)
}

const posts = `mutation{createPost(input:{text:\"hello\"}){post{author{handle}}}}`

// A backend signs users up and acts for them, over HTTP and on sockets. A revoked key is
// refused, and its sockets are closed.
func TestServersActForUsers(t *testing.T) {
	dir := t.TempDir()
	c, err := parse(t, "--data-dir="+dir, "--log-level=warn")
	require.NoError(t, err)
	manager := createKey(t, c, "operator", "", apikey.Scopes)
	url, stop := start(t, Serve, "--data-dir="+dir, "--rate-accounts=1")
	newKey := func(scopes string) (text, answer string) {
		_, answer = askFor(t, url, manager, "", `mutation{createApiKey(input:{name:\"app\",scopes:[`+scopes+`]}){key apiKey{id name scopes lastUsedAt revokedAt}}}`)
		_, rest, found := strings.Cut(answer, `"key":"`)
		require.True(t, found, answer)
		text, _, _ = strings.Cut(rest, `"`)
		return text, answer
	}
	key, answer := newKey("READ,WRITE")
	id := "tk_" + strings.Split(key, "_")[1]
	require.Contains(t, answer, `"apiKey":{"id":"`+id+`","name":"app","scopes":["READ","WRITE"],"lastUsedAt":null,"revokedAt":null}`)

	// The address may sign up two users at once. The key takes nothing from that rate.
	for i := range 6 {
		_, answer = askFor(t, url, key, "", `mutation{signUp(input:{handle:\"user`+string(rune('a'+i))+`\",password:\"correct horse\"}){user{id}}}`)
		require.Contains(t, answer, `"data":{"signUp"`)
	}
	_, rest, _ := strings.Cut(answer, `"id":"`)
	user, _, _ := strings.Cut(rest, `"`)
	for _, wait := range []bool{false, false, true} {
		_, answer = servertest.Ask(t, http.MethodPost, url+"/graphql", `{"query":"mutation{logIn(input:{handle:\"usera\",password:\"correct horse\"}){token}}"}`)
		require.Equal(t, wait, strings.Contains(answer, "RATE_LIMITED"), answer)
	}

	_, answer = askFor(t, url, key, user, posts)
	require.JSONEq(t, `{"data":{"createPost":{"post":{"author":{"handle":"userf"}}}}}`, answer)
	for _, c := range []struct {
		actAs, query, want string
		status             int
	}{
		{"", posts, "UNAUTHENTICATED", 200},
		{"external:7", posts, "UNAUTHENTICATED", 401},
		{user, "mutation{logOut}", "FORBIDDEN", 200},
		{"", "{apiKeys{nodes{id}}}", "FORBIDDEN", 200},
		{"", `mutation{revokeApiKey(input:{id:\"` + id + `\"}){apiKey{id}}}`, "FORBIDDEN", 200},
		{user, "{viewer{handle}}", `{"viewer":{"handle":"userf"}}`, 200},
		{"", "{viewer{handle}}", `{"viewer":null}`, 200},
		{user, "{timeline{nodes{text}}}", `{"text":"hello"}`, 200}, // executed without gqlgen
	} {
		status, answer := askFor(t, url, key, c.actAs, c.query)
		require.Contains(t, answer, c.want, c.query)
		require.Equal(t, c.status, status, c.query)
	}
	writer, _ := newKey("WRITE")
	for _, query := range []string{"{viewer{handle}}", "{timeline{nodes{text}}}", "{viewer{handle} timeline{nodes{text}}}", "{__typename}"} {
		_, answer = askFor(t, url, writer, user, query)
		require.Contains(t, answer, "FORBIDDEN", query)
	}
	reader, _ := newKey("READ")
	_, answer = askFor(t, url, reader, user, posts)
	require.Contains(t, answer, "FORBIDDEN")
	_, answer = servertest.Ask(t, http.MethodPost, url+"/graphql", `{"query":"{apiKeys{nodes{id}}}"}`)
	require.Contains(t, answer, "FORBIDDEN")

	p := servertest.Dial(t, nil, url+"/graphql", servertest.Modern)
	p.Send(`{"type":"connection_init","payload":{"Authorization":"Bearer ` + key + `","Tideline-Act-As":"` + user + `"}}`)
	p.Expect(`{"type":"connection_ack"}`)
	p.Send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{timelineEvents{... on TimelinePostAdded{edge{node{text}}}}}"}}`)
	p.Send(`{"id":"2","type":"subscribe","payload":{"query":"{viewer{handle}}"}}`)
	p.Expect(`{"type":"next","id":"2","payload":{"data":{"viewer":{"handle":"userf"}}}}`)
	p.Expect(`{"type":"complete","id":"2"}`)
	fromHeader := dialWith(t, http.Header{"Authorization": {"Bearer " + key}, "Tideline-Act-As": {user}}, url)
	fromHeader.Send(`{"type":"connection_init"}`)
	fromHeader.Expect(`{"type":"connection_ack"}`)
	for payload, header := range map[string]http.Header{
		`{"Tideline-Act-As":"` + user + `"}`:                                    {"Authorization": {"Bearer " + key}},
		`{"Authorization":"Bearer ` + key + `","Tideline-Act-As":"external:7"}`: nil,
	} {
		refused := dialWith(t, header, url)
		refused.Send(`{"type":"connection_init","payload":` + payload + `}`)
		refused.ExpectClose(4403)
	}

	_, answer = askFor(t, url, manager, "", `mutation{revokeApiKey(input:{id:\"`+id+`\"}){apiKey{id}}}`)
	require.JSONEq(t, `{"data":{"revokeApiKey":{"apiKey":{"id":"`+id+`"}}}}`, answer)
	p.ExpectClose(4403)
	fromHeader.ExpectClose(4403)
	status, _ := askFor(t, url, key, user, "{viewer{handle}}")
	require.Equal(t, http.StatusUnauthorized, status)
	_, answer = askFor(t, url, manager, "", "{apiKeys(first:2){nodes{name revokedAt} pageInfo{hasNextPage}}}")
	require.Contains(t, answer, `"hasNextPage":true`)
	require.NoError(t, stop())

	id = strings.Join(strings.Split(manager, "_")[:2], "_")
	number, err := apikey.ParseID(id)
	require.NoError(t, err)
	used, err := open(t, c, SQL).Keys.Revoke(t.Context(), nil, number)
	require.NoError(t, err)
	require.NotNil(t, used.LastUsedAt, "the server has written it when it stopped")
}

// A key with the scope import writes rows at its issuer, and each row has a result. The price of a
// row depends on its selected fields.
func TestServersSendRows(t *testing.T) {
	dir := t.TempDir()
	c, err := parse(t, "--data-dir="+dir, "--log-level=warn")
	require.NoError(t, err)
	key := createKey(t, c, "sync", "app", []apikey.Scope{apikey.Import, apikey.Read})
	url, stop := start(t, Serve, "--data-dir="+dir)
	for _, query := range []struct{ document, want string }{
		{`mutation{upsertUsers(users:[{externalId:\"1\",handle:\"ann\",createdAt:\"2020-01-02T03:04:05Z\"},{externalId:\"\"},{externalId:\"2\",name:\"Bob\"}]){status code}}`,
			`{"data":{"upsertUsers":[{"status":"CREATED","code":null},{"status":"REFUSED","code":"BAD_USER_INPUT"},{"status":"CREATED","code":null}]}}`},
		{`mutation{upsertFollows(follows:[{followerExternalId:\"1\",followeeExternalId:\"2\"},{followerExternalId:\"1\",followeeExternalId:\"3\"}]){status id reason message}}`,
			`{"data":{"upsertFollows":[{"status":"CREATED","id":null,"reason":null,"message":null},{"status":"REFUSED","id":null,"reason":"NO_SUCH_USER","message":"There is no such user."}]}}`},
		{`mutation{upsertPosts(posts:[{externalId:\"p\",authorExternalId:\"2\",text:\"then\",createdAt:\"2009-02-03T04:05:07.04Z\"},{externalId:\"q\",authorExternalId:\"2\",text:\"older\",createdAt:\"1980-02-03T04:05:06Z\"}]){status code}}`,
			`{"data":{"upsertPosts":[{"status":"CREATED","code":null},{"status":"REFUSED","code":"BAD_USER_INPUT"}]}}`},
		{`mutation{upsertPosts(posts:[{externalId:\"r\",authorExternalId:\"1\",text:\"x\",createdAt:\"yesterday\"},{externalId:\"p\",authorExternalId:\"2\",text:\"then\",createdAt:\"2009-02-03t04:05:07.04+0000\"}]){status code}}`,
			`{"data":{"upsertPosts":[{"status":"REFUSED","code":"BAD_USER_INPUT"},{"status":"UNCHANGED","code":null}]}}`},
		{`mutation{upsertPosts(posts:[{externalId:\"a\",authorExternalId:\"1\",text:\"an answer\",replyToExternalId:\"p\",quoteOfExternalId:\"p\"},{externalId:\"b\",authorExternalId:\"1\",text:\"\",repostOfExternalId:\"p\"},` +
			`{externalId:\"c\",authorExternalId:\"1\",text:\"c\",replyToExternalId:\"zz\"},{externalId:\"d\",authorExternalId:\"1\",text:\"d\",replyToExternalId:\"p\",replyAudience:NOBODY}]){status reason}}`,
			`{"data":{"upsertPosts":[{"status":"CREATED","reason":null},{"status":"CREATED","reason":null},{"status":"REFUSED","reason":"NO_SUCH_POST"},{"status":"REFUSED","reason":"CONTRADICTION"}]}}`},
		{`mutation{upsertUsers(users:[{externalId:\"7\",createdAt:\"\"},{externalId:\"1\",createdAt:\"2020-01-02T03:04:05Z\"}]){status code}}`,
			`{"data":{"upsertUsers":[{"status":"REFUSED","code":"BAD_USER_INPUT"},{"status":"UNCHANGED","code":null}]}}`},
		{`mutation{upsertLikes(likes:[{userExternalId:\"1\",postExternalId:\"p\"}]){status}}`, `{"data":{"upsertLikes":[{"status":"CREATED"}]}}`},
		{`{users(query:\"Bob\"){nodes{posts{nodes{text createdAt likeCount replyCount repostCount quoteCount}}}}}`, `{"data":{"users":{"nodes":[{"posts":{"nodes":[{"text":"then","createdAt":"2009-02-03T04:05:07.040Z","likeCount":1,"replyCount":1,"repostCount":1,"quoteCount":1}]}}]}}}`},
		{`mutation{upsertBlocks(blocks:[{blockerExternalId:\"2\",blockedExternalId:\"1\"}]){status}}`, `{"data":{"upsertBlocks":[{"status":"CREATED"}]}}`},
		{`{user(handle:\"ann\"){createdAt followingCount}}`, `{"data":{"user":{"createdAt":"2020-01-02T03:04:05.000Z","followingCount":0}}}`},
	} {
		_, answer := askFor(t, url, key, "", query.document)
		require.JSONEq(t, query.want, answer)
	}
	_, answer := askFor(t, url, key, "external:1", "{viewer{handle externalId}}")
	require.JSONEq(t, `{"data":{"viewer":{"handle":"ann","externalId":"1"}}}`, answer)
	const deletion = `mutation{deleteUsers(externalIds:[\"2\",\"9\"]){status id}}`
	_, answer = askFor(t, url, key, "", deletion)
	require.JSONEq(t, `{"data":{"deleteUsers":[{"status":"DELETED","id":null},{"status":"UNCHANGED","id":null}]}}`, answer)
	_, answer = askFor(t, url, key, "", `{users(query:\"Bob\"){nodes{id}}}`)
	require.JSONEq(t, `{"data":{"users":{"nodes":[]}}}`, answer)
	many := strings.Repeat(`{externalId:\"7\"},`, 300)
	for asked, refused := range map[string]bool{"status": false, strings.Repeat("status ", 30): false, "status id code reason a:id b:id c:id d:id e:id f:id g:id h:id i:id j:id k:id l:id m:id n:id o:id p:id q:id r:id s:id t:id u:id v:id w:id x:id y:id z:id aa:id bb:id cc:id dd:id": true} {
		_, answer := askFor(t, url, key, "", "mutation{upsertUsers(users:["+many+"]){"+asked+"}}")
		require.Equal(t, refused, strings.Contains(answer, "QUERY_TOO_COMPLEX"), answer)
	}
	for query, code := range map[string]string{`mutation{upsertUsers(users:[]){status}}`: "FORBIDDEN"} {
		_, answer := servertest.Ask(t, http.MethodPost, url+"/graphql", `{"query":"`+query+`"}`)
		require.Contains(t, answer, code)
	}
	require.NoError(t, stop())
}

// dialWith opens a socket with a header.
func dialWith(t *testing.T, header http.Header, url string) *servertest.Peer {
	d := websocket.Dialer{Subprotocols: []string{servertest.Modern}}
	conn, response, err := d.Dial("ws"+strings.TrimPrefix(url, "http")+"/graphql", header)
	require.NoError(t, err)
	response.Body.Close()
	t.Cleanup(func() { conn.Close() })
	return &servertest.Peer{T: t, Conn: conn}
}

// open opens the backend until the test ends.
func open(t *testing.T, c Config, access Access) *backend.Backend {
	t.Helper()
	b, err := Open(t.Context(), c, Console{Out: t.Output(), Log: t.Output()}, access)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// createKey creates the database and a key in it.
func createKey(t *testing.T, c Config, name, issuer string, scopes []apikey.Scope) string {
	t.Helper()
	b := open(t, c, CreateAll)
	_, text, err := b.Keys.Create(t.Context(), nil, name, issuer, scopes)
	require.NoError(t, err)
	require.NoError(t, b.Close()) // its data directory is free again
	return text
}
