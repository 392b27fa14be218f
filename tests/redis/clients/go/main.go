// Checks go-redis: clients SOCKET PORT [COUNT] checks reads and transactions, or one pipeline of COUNT GETs.
// clients tls PORT CA checks reads and transactions over TLS as the user app with the password secret.
// clients addresses PORT checks reads of a table whose keys are addresses.
// clients cluster PORT checks reads of a cluster, one of whose nodes has this port.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const rows = 10000

var ctx = context.Background()

func value(key int) string {
	start := strconv.Itoa(key) + ":"
	return start + strings.Repeat(string(rune('a'+key%26)), 20+key*7919%981-len(start))
}

func pipelineKey(i int) int {
	return i * 7 % (rows + 7)
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

func expect(what string, found, expected any, err error) {
	if err != nil || found != expected {
		fail("%s: %.200v, %v, where %.200v was expected", what, found, err, expected)
	}
}

func expectError(what, prefix string, err error) {
	if err == nil || !strings.HasPrefix(err.Error(), prefix) {
		fail("%s: %v where %s was expected", what, err, prefix)
	}
}

// A command that has been sent in a pipeline or transaction.
func expectValue(cmd redis.Cmder, key int) {
	found, err := cmd.(*redis.StringCmd).Result()
	if key >= rows && errors.Is(err, redis.Nil) {
		return
	}
	expect(cmd.String(), found, value(key), err)
}

func expectValues(cmds []redis.Cmder, count int, err error) {
	// The first missing key is the error of the whole pipeline.
	if err != nil && !errors.Is(err, redis.Nil) {
		fail("%v", err)
	}
	expect("number of replies", len(cmds), count, nil)
	for i, cmd := range cmds {
		expectValue(cmd, pipelineKey(i))
	}
}

func gets(pipe redis.Pipeliner, count int) {
	for i := range count {
		pipe.Get(ctx, strconv.Itoa(pipelineKey(i)))
	}
}

func reads(rdb *redis.Client) {
	pong, err := rdb.Ping(ctx).Result()
	expect("PING", pong, "PONG", err)
	size, err := rdb.DBSize(ctx).Result()
	expect("DBSIZE", size, int64(rows), err)
	expectValue(rdb.Get(ctx, "7"), 7)
	expectValue(rdb.Get(ctx, "10000"), 10000)
	values, err := rdb.MGet(ctx, "1", "10000", "3").Result()
	expect("MGET", fmt.Sprint(values), fmt.Sprint([]any{value(1), nil, value(3)}), err)
	exist, err := rdb.Exists(ctx, "1", "1", "10000").Result()
	expect("EXISTS", exist, int64(2), err)
	length, err := rdb.StrLen(ctx, "7").Result()
	expect("STRLEN", length, int64(len(value(7))), err)
	part, err := rdb.GetRange(ctx, "7", 0, 4).Result()
	expect("GETRANGE", part, value(7)[:5], err)
	kind, err := rdb.Type(ctx, "7").Result()
	expect("TYPE", kind, "string", err)
	ttl, err := rdb.TTL(ctx, "7").Result()
	expect("TTL", ttl, time.Duration(-1), err)
	keys := map[string]bool{}
	scan := rdb.Scan(ctx, 0, "", 0).Iterator()
	for scan.Next(ctx) {
		keys[scan.Val()] = true
	}
	expect("SCAN", len(keys), rows, scan.Err())
	info, err := rdb.Info(ctx).Result()
	expect("INFO", strings.Contains(info, "redis_version"), true, err)
	expectError("SET", "READONLY", rdb.Set(ctx, "1", "x", 0).Err())
	expectError("NOSUCHCOMMAND", "ERR unknown command", rdb.Do(ctx, "NOSUCHCOMMAND").Err())
}

func transactions(rdb *redis.Client) {
	cmds, err := rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		gets(pipe, 3000)
		return nil
	})
	expectValues(cmds, 3000, err)
	pipe := rdb.TxPipeline()
	got := pipe.Get(ctx, "7")
	_, err = pipe.Exec(ctx)
	expect("transaction", got.Val(), value(7), err)
	_, err = rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Get(ctx, "7")
		pipe.Set(ctx, "1", "x", 0)
		return nil
	})
	expectError("transaction with SET", "EXECABORT", err)
	err = rdb.Watch(ctx, func(tx *redis.Tx) error {
		found, err := tx.Get(ctx, "7").Result()
		expect("GET after WATCH", found, value(7), err)
		_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			got = pipe.Get(ctx, "3")
			return nil
		})
		return err
	}, "7")
	expect("transaction after WATCH", got.Val(), value(3), err)
}

func overTLS(port, ca string) *redis.Client {
	pem, err := os.ReadFile(ca)
	roots := x509.NewCertPool()
	expect("certificate authority", roots.AppendCertsFromPEM(pem), true, err)
	return redis.NewClient(&redis.Options{
		Addr: "localhost:" + port, Username: "app", Password: "secret", TLSConfig: &tls.Config{RootCAs: roots},
	})
}

func addresses(port string) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
	six, err := rdb.Get(ctx, netip.MustParseAddr("2001:db8::1").String()).Result()
	expect("GET", six, "six", err)
	values, err := rdb.MGet(ctx, "::ffff:10.0.0.1", "10.0.0.2", "2001:DB8:0::1").Result()
	expect("MGET", fmt.Sprint(values), fmt.Sprint([]any{"ten", nil, "six"}), err)
	keys, err := rdb.Keys(ctx, "*.1").Result()
	expect("KEYS", fmt.Sprint(keys), "[10.0.0.1 192.0.2.1]", err)
	found, _, err := rdb.Scan(ctx, 0, "2001:*", 100).Result()
	expect("SCAN", fmt.Sprint(found), "[2001:db8::1]", err)
	floor, err := rdb.Do(ctx, "ZKV.FLOOR", "192.0.2.200").Result()
	expect("ZKV.FLOOR", fmt.Sprint(floor), "[192.0.2.1 documentation]", err)
	expectError("GET of a name", "ERR 'localhost' is not a key of this table", rdb.Get(ctx, "localhost").Err())
}

func main() {
	if os.Args[1] == "addresses" {
		addresses(os.Args[2])
		return
	}
	if os.Args[1] == "cluster" {
		cluster(os.Args[2])
		return
	}
	if os.Args[1] == "tls" {
		rdb := overTLS(os.Args[2], os.Args[3])
		reads(rdb)
		transactions(rdb)
		return
	}
	unix := redis.NewClient(&redis.Options{Network: "unix", Addr: os.Args[1], ReadTimeout: -1, WriteTimeout: -1})
	if len(os.Args) > 3 {
		count, _ := strconv.Atoi(os.Args[3])
		pipe := unix.Pipeline()
		gets(pipe, count)
		cmds, err := pipe.Exec(ctx)
		expectValues(cmds, count, err)
		return
	}
	tcp := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[2]})
	for _, rdb := range []*redis.Client{unix, tcp} {
		reads(rdb)
		transactions(rdb)
	}
}
