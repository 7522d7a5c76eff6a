package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// issuer is the claim iss of the app's tokens. TIDELINE_ISSUERS in the script run has the same.
const issuer = "example-app"

// tokenLife is short, because a token stays valid after the user signs out of the app.
const tokenLife = 5 * time.Minute

// tideline is the app's client of Tideline. It signs the users' tokens with a shared secret,
// and makes the app's own calls with an API key.
type tideline struct {
	url, key string
	secret   []byte
}

// token returns a JWT that identifies the user. Tideline creates the user at the first one.
func (t tideline) token(u user, now time.Time) string {
	claims, err := json.Marshal(map[string]any{
		"iss": issuer, "aud": "tideline", "sub": u.id, "preferred_username": u.name, "name": u.name,
		"iat": now.Unix(), "exp": now.Add(tokenLife).Unix(),
	})
	if err != nil {
		panic(err) // cannot happen: only strings and numbers
	}
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256"}`)) + "." + base64.RawURLEncoding.EncodeToString(claims)
	mac := hmac.New(sha256.New, t.secret)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// deleteUsers deletes up to 100 users and everything they own, and returns those that were not
// refused. They are hidden when it returns, and deleted soon after. Users who do not exist are no
// error.
func (t tideline) deleteUsers(ctx context.Context, ids []string) (deleted []string, err error) {
	var answer struct {
		DeleteUsers []struct{ Status, Message string }
	}
	err = t.ask(ctx, `mutation ($ids: [String!]!) { deleteUsers(externalIds: $ids) { status message } }`, map[string]any{"ids": ids}, &answer)
	if err != nil {
		return nil, err
	}
	for i, result := range answer.DeleteUsers {
		if result.Status == "REFUSED" {
			err = errors.Join(err, fmt.Errorf("delete user %s: %s", ids[i], result.Message))
			continue
		}
		deleted = append(deleted, ids[i])
	}
	return deleted, err
}

// ask calls Tideline with the app's key, and decodes the data into result.
func (t tideline) ask(ctx context.Context, document string, variables map[string]any, result any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	body, err := json.Marshal(map[string]any{"query": document, "variables": variables})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url+"/graphql", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+t.key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer := struct {
		Data   any
		Errors []struct{ Message string }
	}{Data: result}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("status %s: %w", response.Status, err)
	}
	if len(answer.Errors) > 0 {
		return fmt.Errorf("status %s: %s", response.Status, answer.Errors[0].Message)
	}
	return nil
}

// ready waits until Tideline is ready, or the context ends.
func (t tideline) ready(ctx context.Context) error {
	for again := time.NewTicker(100 * time.Millisecond); ; {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url+"/readyz", nil)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
