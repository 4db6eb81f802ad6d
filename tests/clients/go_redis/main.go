// A session of go-redis, in RESP2 and in RESP3. Usage: go_redis HOST PORT
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	ctx            = context.Background()
	passed, failed int
)

func check(what string, actual, expected any) {
	if reflect.DeepEqual(actual, expected) {
		passed++
		return
	}
	failed++
	fmt.Printf("FAILED %s: %.200v, expected %.200v\n", what, actual, expected)
}

// must takes the value of a call that may not fail.
func must[T any](what string) func(T, error) T {
	return func(value T, err error) T {
		if err != nil {
			check(what, err, nil)
		}
		return value
	}
}

func text(c *redis.StringCmd) string { return must[string]("GET")(c.Result()) }

func stringCommands(r *redis.Client) {
	check("SET", must[string]("SET")(r.Set(ctx, "k", "v", 0).Result()), "OK")
	check("GET", text(r.Get(ctx, "k")), "v")
	check("GET of nothing", errors.Is(r.Get(ctx, "nothing").Err(), redis.Nil), true)
	check("SET NX on a key", must[bool]("SET NX")(r.SetNX(ctx, "k", "w", time.Minute).Result()), false)
	check("GETSET", text(r.GetSet(ctx, "k", "w")), "v")
	check("APPEND", must[int64]("APPEND")(r.Append(ctx, "k", "xyz").Result()), int64(4))
	check("GETRANGE", text(r.GetRange(ctx, "k", -3, -1)), "xyz")
	check("INCRBY", must[int64]("INCRBY")(r.IncrBy(ctx, "n", 42).Result()), int64(42))
	check("DECR", must[int64]("DECR")(r.Decr(ctx, "n").Result()), int64(41))
	check("INCRBYFLOAT", must[float64]("INCRBYFLOAT")(r.IncrByFloat(ctx, "f", 1.5).Result()), 1.5)
	check("MSET", must[string]("MSET")(r.MSet(ctx, "a", 1, "b", "zwei").Result()), "OK")
	check("MGET", must[[]any]("MGET")(r.MGet(ctx, "a", "nothing", "b").Result()), []any{"1", nil, "zwei"})
	check("MSETNX", must[bool]("MSETNX")(r.MSetNX(ctx, "a", 2, "new", 3).Result()), false)
	check("DEL", must[int64]("DEL")(r.Del(ctx, "a", "b", "nothing").Result()), int64(2))
}

func expiry(r *redis.Client) {
	r.Set(ctx, "e", "v", 100*time.Second)
	left := must[time.Duration]("TTL")(r.TTL(ctx, "e").Result())
	check("TTL", left >= 99*time.Second && left <= 100*time.Second, true)
	check("PERSIST", must[bool]("PERSIST")(r.Persist(ctx, "e").Result()), true)
	check("TTL without a deadline", must[time.Duration]("TTL")(r.TTL(ctx, "e").Result()), time.Duration(-1))
	check("PEXPIRE", must[bool]("PEXPIRE")(r.PExpire(ctx, "e", 40*time.Millisecond).Result()), true)
	time.Sleep(120 * time.Millisecond)
	check("GET of what expired", errors.Is(r.Get(ctx, "e").Err(), redis.Nil), true)
	check("TTL of nothing", must[time.Duration]("TTL")(r.TTL(ctx, "e").Result()), time.Duration(-2))
}

func keys(r *redis.Client) {
	r.FlushAll(ctx)
	var wanted []string
	pipe := r.Pipeline()
	for i := range 2500 {
		name := fmt.Sprintf("scan:%04d", i)
		wanted = append(wanted, name)
		pipe.Set(ctx, name, i, 0)
	}
	answers, err := pipe.Exec(ctx)
	check("a pipeline of 2500", []any{len(answers), err}, []any{2500, nil})
	seen := map[string]bool{}
	for scan := r.Scan(ctx, 0, "scan:*", 100).Iterator(); scan.Next(ctx); {
		seen[scan.Val()] = true
	}
	var found []string
	for name := range seen {
		found = append(found, name)
	}
	sort.Strings(found)
	check("SCAN", found, wanted)
	check("DBSIZE", must[int64]("DBSIZE")(r.DBSize(ctx).Result()), int64(2500))
	check("EXISTS", must[int64]("EXISTS")(r.Exists(ctx, "scan:0001", "nothing").Result()), int64(1))
	check("RENAME", must[string]("RENAME")(r.Rename(ctx, "scan:0001", "renamed").Result()), "OK")
	check("TYPE", must[string]("TYPE")(r.Type(ctx, "renamed").Result()), "string")
	check("UNLINK", must[int64]("UNLINK")(r.Unlink(ctx, "renamed", "scan:0002").Result()), int64(2))
	check("FLUSHDB", must[string]("FLUSHDB")(r.FlushDB(ctx).Result()), "OK")
}

func binary(r *redis.Client) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	r.Set(ctx, string(every), every, 0)
	check("binary key and value", text(r.Get(ctx, string(every))), string(every))
	r.Set(ctx, "empty", "", 0)
	check("empty value", text(r.Get(ctx, "empty")), "")
	for _, size := range []int{1 << 20, 5<<20 + 3} {
		value := bytes.Repeat(every, size/256+1)[:size]
		r.Set(ctx, "large", value, 0)
		check(fmt.Sprintf("a value of %d bytes", size), text(r.Get(ctx, "large")) == string(value), true)
	}
}

func errorReplies(r *redis.Client) {
	r.Set(ctx, "text", "abc", 0)
	check("INCR of text", r.Incr(ctx, "text").Err().Error(), "ERR value is not an integer or out of range")
	err := r.Do(ctx, "NOSUCH", "x").Err()
	check("an unknown command", err != nil && strings.HasPrefix(err.Error(), "ERR unknown command 'NOSUCH'"), true)
	pipe := r.Pipeline()
	first, second, third := pipe.Set(ctx, "x", 1, 0), pipe.Incr(ctx, "text"), pipe.Get(ctx, "x")
	_, err = pipe.Exec(ctx)
	check("an error inside a pipeline", []any{first.Val(), second.Err() != nil, third.Val(), err != nil}, []any{"OK", true, "1", true})
	check("the connection works on", must[string]("PING")(r.Ping(ctx).Result()), "PONG")
}

func server(r *redis.Client, protocol int) {
	hello := must[any]("HELLO")(r.Do(ctx, "HELLO").Result())
	proto := int64(2)
	if fields, ok := hello.(map[any]any); ok {
		proto = fields["proto"].(int64)
	}
	check("HELLO", proto, int64(protocol))
	check("INFO", strings.Contains(must[string]("INFO")(r.Info(ctx, "server").Result()), "redis_mode:standalone\r\n"), true)
	config := must[map[string]string]("CONFIG GET")(r.ConfigGet(ctx, "maxmemory-policy").Result())
	check("CONFIG GET", config, map[string]string{"maxmemory-policy": "noeviction"})
	check("CLIENT ID", must[int64]("CLIENT ID")(r.ClientID(ctx).Result()) > 0, true)
	check("COMMAND", len(must[map[string]*redis.CommandInfo]("COMMAND")(r.Command(ctx).Result())) > 10, true)
}

func manyConnections(r *redis.Client) {
	var group sync.WaitGroup
	var lock sync.Mutex
	wrong := 0
	for worker := range 50 {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := range 50 {
				key := fmt.Sprintf("worker:%d", worker)
				if r.Set(ctx, key, i, 0).Err() != nil || r.Get(ctx, key).Val() != fmt.Sprint(i) || r.Incr(ctx, "shared").Err() != nil {
					lock.Lock()
					wrong++
					lock.Unlock()
				}
			}
		}()
	}
	group.Wait()
	check("50 connections at once", wrong, 0)
	check("their common counter", text(r.Get(ctx, "shared")), "2500")
}

func main() {
	for _, protocol := range []int{2, 3} {
		r := redis.NewClient(&redis.Options{Addr: net.JoinHostPort(os.Args[1], os.Args[2]), Protocol: protocol, PoolSize: 50})
		r.FlushAll(ctx)
		stringCommands(r)
		expiry(r)
		keys(r)
		binary(r)
		errorReplies(r)
		server(r, protocol)
		r.FlushAll(ctx)
		manyConnections(r)
		r.Close()
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}
