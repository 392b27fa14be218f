package main

import (
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Checks reads from primaries, and from replicas.
func cluster(port string) {
	for _, readOnly := range []bool{false, true} {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:" + port}, ReadOnly: readOnly})
		for i := range 2000 {
			expectValue(rdb.Get(ctx, strconv.Itoa(pipelineKey(i))), pipelineKey(i))
		}
		pipe := rdb.Pipeline()
		gets(pipe, 3000)
		cmds, err := pipe.Exec(ctx)
		expectValues(cmds, 3000, err)
		size, err := rdb.DBSize(ctx).Result()
		expect("DBSIZE", size, int64(rows), err)
		rdb.Close()
	}
}
