-- What a user of PostGraphile adds to Tideline's tables for a home page. The functions are
-- plain SQL and STABLE, so that PostgreSQL plans their bodies as part of the page's statement.
BEGIN;
CREATE SCHEMA IF NOT EXISTS home;

-- Followees come from the index of a follower, their posts from that of an author.
CREATE OR REPLACE FUNCTION home.page(viewer bigint) RETURNS SETOF public.posts LANGUAGE sql STABLE AS $$
  SELECT p.* FROM public.posts p JOIN public.follows f ON f.followee_id = p.author_id
  WHERE f.follower_id = viewer AND p.visibility IN ('PUBLIC', 'FOLLOWERS') ORDER BY p.id DESC
$$;

CREATE OR REPLACE FUNCTION home.posts_viewer_has_liked(post public.posts, viewer bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT FROM public.likes l WHERE l.post_id = post.id AND l.user_id = viewer)
$$;

-- An id has the milliseconds of its post: since 2026 began, after the 731 days before.
CREATE OR REPLACE FUNCTION home.posts_created_at(post public.posts) RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT timestamptz '2026-01-01 00:00:00+00' + ((post.id >> 12) - 731 * 86400000::bigint) * interval '1 millisecond'
$$;
COMMIT;
