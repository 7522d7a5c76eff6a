package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"
)

// kind is a kind of fault. happen injects the fault, keeps it for about length, and undoes
// it. detail describes the target.
type kind struct {
	name   string
	long   bool // lasts for pace.long if enough time is left
	happen func(w *world, ctx context.Context, rng *rand.Rand, length time.Duration) (detail string, err error)
}

// storeFaults affect PostgreSQL and Redis, one at a time.
var storeFaults = []kind{
	{"redis restarted from a snapshot", false, restartFromSnapshot},
	{"failover to a lagging replica", false, failOverToLaggingReplica},
	{"master killed", false, killMaster},
	{"master stopped", false, stopMaster},
	{"memory full", false, fillMemory},
	{"slots moved", false, moveSlots},
	{"postgres restarted", false, func(w *world, _ context.Context, _ *rand.Rand, _ time.Duration) (string, error) {
		return "immediate", w.pg.restart()
	}},
	{"postgres failed over", false, func(w *world, ctx context.Context, _ *rand.Rand, _ time.Duration) (string, error) {
		if w.pg.standby == nil {
			return "restarted, for the standby is used up", w.pg.restart()
		}
		return "to the standby", w.pg.failOver(ctx)
	}},
}

// processFaults affect Tideline's processes, one at a time.
var processFaults = []kind{
	{"server stopped", true, toServer(stop)},
	{"worker stopped", true, toWorker(stopAtWork)},
	{"server cut off from redis", true, toServer(cutFromRedis)},
	{"worker killed", false, toWorker(killAtWork)},
	{"server killed", false, toServer(kill)},
	{"worker cut off from redis", false, toWorker(cutFromRedis)},
	{"worker cut off from a master", false, toWorker(cutFromMaster)},
	{"server cut off from postgres", false, toServer(cutFromPostgres)},
	{"worker cut off from postgres", false, toWorker(cutFromPostgres)},
}

// memberFault injects a fault into one of Tideline's processes.
type memberFault func(w *world, ctx context.Context, rng *rand.Rand, m *member, length time.Duration) (detail string, err error)

func toServer(do memberFault) func(*world, context.Context, *rand.Rand, time.Duration) (string, error) {
	return func(w *world, ctx context.Context, rng *rand.Rand, length time.Duration) (string, error) {
		return w.afflict(ctx, rng, oneOf(rng, w.servers), length, do)
	}
}

func toWorker(do memberFault) func(*world, context.Context, *rand.Rand, time.Duration) (string, error) {
	return func(w *world, ctx context.Context, rng *rand.Rand, length time.Duration) (string, error) {
		return w.afflict(ctx, rng, oneOf(rng, w.workers), length, do)
	}
}

// afflict injects the fault into the process, and sets w.afflicted meanwhile.
func (w *world) afflict(ctx context.Context, rng *rand.Rand, m *member, length time.Duration, do memberFault) (string, error) {
	w.afflicted.Store(m)
	defer w.afflicted.Store(nil)
	detail, err := do(w, ctx, rng, m, length)
	return m.name + detail, err
}

func oneOf[T any](rng *rand.Rand, list []T) T { return list[rng.IntN(len(list))] }

// between returns a random duration from least to most.
func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)))
}

// stop freezes a process. After it continues, the process may send data that it decided on
// before. In half of the cases the process's Redis connections are closed meanwhile, as
// Redis does to a client that does not read.
func stop(w *world, _ context.Context, rng *rand.Rand, m *member, length time.Duration) (detail string, err error) {
	hungUp := rng.IntN(2) == 0
	m.Freeze()
	time.Sleep(length)
	if hungUp {
		detail = ", redis hung up"
		for _, n := range w.cluster.nodes {
			n.proxy.Drop(m.name)
		}
	}
	m.Thaw()
	return detail, nil
}

// stopAtWork freezes a worker between its reads and its writes, in these steps:
//
//  1. The worker is cut off from all masters except the one with the job stream.
//  2. Users hide posts. The worker takes the jobs and reads SQL; its writes to Redis are
//     delayed.
//  3. The worker is frozen, and the users show the posts again.
//  4. The cut is healed and the worker continues. Its outdated writes arrive now.
func stopAtWork(w *world, ctx context.Context, rng *rand.Rand, m *member, length time.Duration) (string, error) {
	all, err := w.cluster.shards(ctx)
	if err != nil {
		return "", err
	}
	var cut []*node
	for _, s := range all {
		if s.master.client.Exists(ctx, "q:{small}:s").Err() != nil { // MOVED: another master has the job stream
			cut = append(cut, s.master)
		}
	}
	posts := w.load.takeNewest(8)
	change := func(to values) {
		var all sync.WaitGroup
		for _, p := range posts {
			author := w.load.by(p, rand.New(rand.NewPCG(rng.Uint64(), 0)))
			all.Go(func() { author.change(ctx, p, to) })
		}
		all.Wait()
	}
	for _, n := range cut {
		n.proxy.Cut(m.name)
	}
	change(private)
	time.Sleep(200 * time.Millisecond)
	m.Freeze()
	change(followers)
	for _, p := range posts {
		w.load.release(p)
	}
	time.Sleep(length)
	for _, n := range cut {
		n.proxy.Heal(m.name)
	}
	m.Thaw()
	return fmt.Sprintf(", %d posts shown again", len(posts)), nil
}

// cutFromRedis cuts a process off from all nodes of the cluster.
func cutFromRedis(w *world, _ context.Context, _ *rand.Rand, m *member, length time.Duration) (string, error) {
	cutOff(m, length, w.cluster.nodes...)
	return "", nil
}

func cutFromMaster(w *world, ctx context.Context, rng *rand.Rand, m *member, length time.Duration) (string, error) {
	s, err := w.cluster.anyShard(ctx, rng)
	if err != nil {
		return "", err
	}
	cutOff(m, length, s.master)
	return ", " + s.master.name, nil
}

func cutOff(m *member, length time.Duration, nodes ...*node) {
	for _, n := range nodes {
		n.proxy.Cut(m.name)
	}
	time.Sleep(length)
	for _, n := range nodes {
		n.proxy.Heal(m.name)
	}
}

func cutFromPostgres(_ *world, _ context.Context, _ *rand.Rand, m *member, length time.Duration) (string, error) {
	m.pg.Cut(m.name)
	time.Sleep(length)
	m.pg.Heal(m.name)
	return "", nil
}

// killAtWork kills a worker while it has work. It freezes the worker first, so that jobs
// accumulate.
func killAtWork(w *world, ctx context.Context, rng *rand.Rand, m *member, length time.Duration) (string, error) {
	m.Freeze()
	time.Sleep(time.Second)
	m.Thaw()
	time.Sleep(between(rng, 0, 30*time.Millisecond))
	return kill(w, ctx, rng, m, length)
}

// kill kills a process and restarts it. It repeats the start while the stores are
// unavailable.
func kill(_ *world, ctx context.Context, rng *rand.Rand, m *member, _ time.Duration) (string, error) {
	m.Kill()
	time.Sleep(between(rng, 0, 3*time.Second))
	return "", eventually(ctx, 2*time.Minute, func() error {
		err := m.Start()
		if err != nil {
			m.Kill()
		}
		return err
	})
}

// anyShard waits until the cluster is complete and returns a random shard.
func (c *cluster) anyShard(ctx context.Context, rng *rand.Rand) (shard, error) {
	if err := c.awaitWhole(ctx); err != nil {
		return shard{}, err
	}
	all, err := c.shards(ctx)
	if err != nil {
		return shard{}, err
	}
	return oneOf(rng, all), nil
}

// restartFromSnapshot kills a master some seconds after a snapshot and restarts it from the
// snapshot before its replica takes over.
func restartFromSnapshot(w *world, ctx context.Context, rng *rand.Rand, _ time.Duration) (string, error) {
	s, err := w.cluster.anyShard(ctx, rng)
	if err != nil {
		return "", err
	}
	if err := s.master.client.Save(ctx).Err(); err != nil {
		return "", err
	}
	saved, age := time.Now(), between(rng, 4*time.Second, 8*time.Second)
	time.Sleep(age)
	s.master.Kill()
	if err := s.master.start(); err != nil {
		return "", err
	}
	detail := fmt.Sprintf("%s, %.1f s old", s.master.name, time.Since(saved).Seconds())
	s.master.forget()
	time.Sleep(3 * time.Second) // the master learns whether it has been replaced
	replication, err := s.master.ask(ctx, "INFO", "replication")
	if err == nil && !strings.Contains(replication, "role:master") {
		detail += ", but its replica took over"
	}
	return detail, err
}

// failOverToLaggingReplica delays the replication of a master and then kills the master. The
// replica that takes over lacks the writes that were acknowledged meanwhile.
func failOverToLaggingReplica(w *world, ctx context.Context, rng *rand.Rand, _ time.Duration) (string, error) {
	s, err := w.cluster.anyShard(ctx, rng)
	if err != nil {
		return "", err
	}
	lag, takeover := between(rng, 3*time.Second, 6*time.Second), rng.IntN(2) == 0
	s.master.proxy.Cut(replica)
	time.Sleep(lag)
	s.master.Kill()
	s.master.proxy.Drop(replica)
	s.master.proxy.Heal(replica)
	detail := fmt.Sprintf("%s to %s, %.1f s behind", s.master.name, s.replica.name, lag.Seconds())
	if takeover {
		detail += ", forced"
		if err := s.replica.client.Do(ctx, "CLUSTER", "FAILOVER", "TAKEOVER").Err(); err != nil {
			return detail, err
		}
	}
	return detail, w.cluster.replaceMaster(ctx, s)
}

// replaceMaster waits until the replica of a killed master has taken over. It then starts the
// old master, empty, as the new replica.
func (c *cluster) replaceMaster(ctx context.Context, s shard) error {
	err := eventually(ctx, time.Minute, func() error {
		replication, err := s.replica.ask(ctx, "INFO", "replication")
		if err == nil && !strings.Contains(replication, "role:master") {
			err = fmt.Errorf("%s has not taken over", s.replica.name)
		}
		return err
	})
	if err != nil {
		return err
	}
	time.Sleep(time.Second)
	s.master.forget()
	return s.master.start()
}

func killMaster(w *world, ctx context.Context, rng *rand.Rand, _ time.Duration) (string, error) {
	s, err := w.cluster.anyShard(ctx, rng)
	if err != nil {
		return "", err
	}
	s.master.Kill()
	return fmt.Sprintf("%s, then %s", s.master.name, s.replica.name), w.cluster.replaceMaster(ctx, s)
}

// stopMaster freezes a master for length, so that its replica can take over, and then lets it
// continue.
func stopMaster(w *world, ctx context.Context, rng *rand.Rand, length time.Duration) (string, error) {
	s, err := w.cluster.anyShard(ctx, rng)
	if err != nil {
		return "", err
	}
	s.master.Freeze()
	time.Sleep(length)
	s.master.Thaw()
	return fmt.Sprintf("%s for %v", s.master.name, length.Round(time.Second)), nil
}

// fillMemory limits the memory of the masters: they first refuse writes, and then evict about
// a quarter of their data.
func fillMemory(w *world, ctx context.Context, _ *rand.Rand, length time.Duration) (string, error) {
	all, err := w.cluster.shards(ctx)
	if err != nil {
		return "", err
	}
	limit := func(policy string, maxmemory func(used, data int64) int64) error {
		for _, s := range all {
			info, err := s.master.ask(ctx, "INFO", "memory")
			if err != nil {
				return err
			}
			for _, set := range [][2]string{
				{"maxmemory-policy", policy},
				{"maxmemory", fmt.Sprint(maxmemory(infoNumber(info, "used_memory"), infoNumber(info, "used_memory_dataset")))},
			} {
				if err := s.master.client.ConfigSet(ctx, set[0], set[1]).Err(); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := limit("noeviction", func(used, _ int64) int64 { return used }); err != nil {
		return "", err
	}
	time.Sleep(length / 2)
	if err := limit("allkeys-lru", func(used, data int64) int64 { return used - data/4 }); err != nil {
		return "", err
	}
	time.Sleep(length / 2)
	return "refused, then evicted", limit("noeviction", func(int64, int64) int64 { return 0 })
}

// infoNumber returns a numeric field of the output of Redis's INFO.
func infoNumber(info, name string) int64 {
	_, rest, _ := strings.Cut(info, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r")
	n, _ := strconv.ParseInt(value, 10, 64)
	return n
}

func moveSlots(w *world, ctx context.Context, rng *rand.Rand, _ time.Duration) (string, error) {
	if err := w.cluster.awaitWhole(ctx); err != nil {
		return "", err
	}
	all, err := w.cluster.shards(ctx)
	if err != nil {
		return "", err
	}
	from := rng.IntN(len(all))
	to := (from + 1 + rng.IntN(len(all)-1)) % len(all)
	keys, err := w.cluster.moveSlots(ctx, all[from].master, all[to].master, 40)
	return fmt.Sprintf("%d keys from %s to %s", keys, all[from].master.name, all[to].master.name), err
}
