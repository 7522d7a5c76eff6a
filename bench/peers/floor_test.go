package peers

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"tideline/feed/ids"
	"tideline/timeline"
)

const floorPosts = `SELECT p.id, p.text, p.visibility, p.like_count, u.id, u.handle, u.name
	FROM posts p JOIN users u ON u.id = p.author_id WHERE p.id = ANY($1) ORDER BY p.id DESC`

// serveFloor serves the page of BenchmarkPage with the minimum work: a range of the inbox, one SQL query, and
// JSON written by hand.
func serveFloor(ctx context.Context, database, redisURL string) error {
	cfg, err := pgxpool.ParseConfig(database)
	if err != nil {
		return err
	}
	cfg.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(options)
	defer rdb.Close()
	return serveHTTP(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reader, err := strconv.ParseInt(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer token"), 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		body, err := floorPage(r.Context(), pool, rdb, reader)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
	}))
}

func floorPage(ctx context.Context, pool *pgxpool.Pool, rdb *redis.Client, reader int64) ([]byte, error) {
	members, err := rdb.ZRange(ctx, timeline.Inbox(reader).String()+":z", 0, 19).Result()
	if err != nil {
		return nil, err
	}
	postIDs := make([]int64, len(members))
	for i, m := range members {
		if postIDs[i], err = strconv.ParseInt(m, 10, 64); err != nil {
			return nil, err
		}
	}
	rows, err := pool.Query(ctx, floorPosts, postIDs)
	if err != nil {
		return nil, err
	}
	body := make([]byte, 0, 8<<10)
	body = append(body, `{"data":{"timeline":{"pageInfo":{"hasNextPage":true},"edges":[`...)
	var id, author int64
	var text, visibility, handle, name string
	var likes int
	first := true
	_, err = pgx.ForEachRow(rows, []any{&id, &text, &visibility, &likes, &author, &handle, &name}, func() error {
		if !first {
			body = append(body, ',')
		}
		first = false
		body = append(body, `{"cursor":"`...)
		body = strconv.AppendInt(body, id, 36)
		body = append(body, `","node":{"id":"`...)
		body = strconv.AppendInt(body, id, 10)
		body = append(body, `","text":`...)
		body = strconv.AppendQuote(body, text)
		body = append(body, `,"visibility":"`...)
		body = append(body, visibility...)
		body = append(body, `","createdAt":"`...)
		body = ids.TimeOf(id).AppendFormat(body, time.RFC3339Nano)
		body = append(body, `","likeCount":`...)
		body = strconv.AppendInt(body, int64(likes), 10)
		body = append(body, `,"viewerHasLiked":false,"author":{"id":"`...)
		body = strconv.AppendInt(body, author, 10)
		body = append(body, `","handle":`...)
		body = strconv.AppendQuote(body, handle)
		body = append(body, `,"name":`...)
		body = strconv.AppendQuote(body, name)
		body = append(body, `}}}`...)
		return nil
	})
	return append(body, `]}}}`...), err
}
