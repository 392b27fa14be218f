// Looks keys up in a Zero-KV server: go run . SOCKET KEY...; exit status 0 found, 1 not found, 2 error.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"
)

func check(err error) {
	if err != nil && !errors.Is(err, redis.Nil) {
		fmt.Fprintln(os.Stderr, "lookup:", err)
		os.Exit(2)
	}
}

func main() {
	if len(os.Args) < 3 {
		check(errors.New("usage: lookup SOCKET KEY..."))
	}
	ctx := context.Background()
	table := redis.NewClient(&redis.Options{Network: "unix", Addr: os.Args[1]})
	status := 0
	keys := os.Args[2:]
	pipeline := table.TxPipeline() // A transaction (MULTI) gets all replies from one table.
	for _, key := range keys {
		pipeline.Get(ctx, key)
		pipeline.Exists(ctx, key)
		pipeline.Do(ctx, "ZKV.FLOOR", key)
	}
	replies, err := pipeline.Exec(ctx) // Returns the first error of a command; a missing key counts as an error.
	check(err)
	for i, key := range keys {
		value, exists, floor := "not found", "not found", "not found"
		if err := replies[3*i].Err(); err == nil {
			value = replies[3*i].(*redis.StringCmd).Val()
		}
		if replies[3*i+1].(*redis.IntCmd).Val() == 1 {
			exists = "yes"
		} else {
			status = 1
		}
		if row, err := replies[3*i+2].(*redis.Cmd).StringSlice(); err == nil {
			floor = row[0] + " " + row[1]
		}
		fmt.Printf("get %s: %s\nexists %s: %s\nfloor %s: %s\n", key, value, key, exists, key, floor)
	}
	os.Exit(status)
}
