import io.lettuce.core.ReadFrom;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.cluster.api.sync.RedisAdvancedClusterCommands;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import redis.clients.jedis.ClusterPipeline;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.Response;

/**
 * Jedis and Lettuce: java ClusterClients jedis|lettuce PORT checks reads of a cluster, one of whose nodes has this port.
 */
final class ClusterClients {
    static final int COUNT = 3000;

    static void jedis(int port) {
        try (RedisClusterClient jedis = RedisClusterClient.create(new HostAndPort("127.0.0.1", port))) {
            List<String> values = new ArrayList<>(COUNT);
            for (int i = 0; i < COUNT; i++) values.add(jedis.get(Integer.toString(Rows.pipelineKey(i))));
            Rows.expectValues(values, COUNT);
            List<Response<String>> replies = new ArrayList<>(COUNT);
            try (ClusterPipeline pipeline = jedis.pipelined()) {
                for (int i = 0; i < COUNT; i++) replies.add(pipeline.get(Integer.toString(Rows.pipelineKey(i))));
            }
            Rows.expectValues(replies.stream().map(Response::get).toList(), COUNT);
        }
    }

    static void lettuce(int port) {
        io.lettuce.core.cluster.RedisClusterClient client =
                io.lettuce.core.cluster.RedisClusterClient.create(RedisURI.create("127.0.0.1", port));
        for (ReadFrom from : List.of(ReadFrom.UPSTREAM, ReadFrom.REPLICA)) {
            try (StatefulRedisClusterConnection<String, String> connection = client.connect()) {
                connection.setReadFrom(from);
                RedisAdvancedClusterCommands<String, String> redis = connection.sync();
                List<String> values = new ArrayList<>(COUNT);
                String[] keys = new String[COUNT];
                for (int i = 0; i < COUNT; i++) {
                    keys[i] = Integer.toString(Rows.pipelineKey(i));
                    values.add(redis.get(keys[i]));
                }
                Rows.expectValues(values, COUNT);
                // Lettuce divides the keys by their slots.
                Rows.expectValues(redis.mget(keys).stream().map(row -> row.getValueOrElse(null)).toList(), COUNT);
                Rows.expect("DBSIZE", redis.dbsize(), (long) Rows.ROWS);
            }
        }
        client.shutdown(Duration.ZERO, Duration.ofSeconds(5));
    }

    public static void main(String[] args) {
        int port = Integer.parseInt(args[1]);
        if (args[0].equals("jedis")) jedis(port);
        else lettuce(port);
    }

    private ClusterClients() {}
}
