import io.lettuce.core.ClientOptions;
import io.lettuce.core.LettuceFutures;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.SslOptions;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.StatusOutput;
import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/**
 * Lettuce: java LettuceClient SOCKET PORT [COUNT] checks reads and transactions, or one pipeline of COUNT GETs. java
 * LettuceClient tls PORT CA checks reads and transactions over TLS as the user app with the password secret.
 */
final class LettuceClient {
    static void reads(RedisCommands<String, String> redis) {
        Rows.expect("PING", redis.ping(), "PONG");
        Rows.expect("DBSIZE", redis.dbsize(), (long) Rows.ROWS);
        Rows.expect("GET", redis.get("7"), Rows.value(7));
        Rows.expect("GET", redis.get(Rows.MISSING), null);
        List<String> values = redis.mget("1", Rows.MISSING, "3").stream().map(row -> row.getValueOrElse("missing")).toList();
        Rows.expect("MGET", values, List.of(Rows.value(1), "missing", Rows.value(3)));
        Rows.expect("EXISTS", redis.exists("1", "1", Rows.MISSING), 2L);
        Rows.expect("STRLEN", redis.strlen("7"), (long) Rows.value(7).length());
        Rows.expect("GETRANGE", redis.getrange("7", 0, 4), Rows.value(7).substring(0, 5));
        Rows.expect("TYPE", redis.type("7"), "string");
        Rows.expect("TTL", redis.ttl("7"), -1L);
        Rows.expect("SCAN", ScanIterator.scan(redis).stream().distinct().count(), (long) Rows.ROWS);
        Rows.expect("INFO", redis.info().contains("redis_version"), true);
        Rows.expectError("READONLY", () -> redis.set("1", "x"));
        Rows.expectError(
                "unknown command",
                () -> redis.dispatch(() -> "NOSUCHCOMMAND".getBytes(), new StatusOutput<>(StringCodec.UTF8)));
    }

    static List<RedisFuture<String>> gets(RedisAsyncCommands<String, String> redis, int count) {
        List<RedisFuture<String>> replies = new ArrayList<>(count);
        for (int i = 0; i < count; i++) replies.add(redis.get(Integer.toString(Rows.pipelineKey(i))));
        return replies;
    }

    static void transactions(StatefulRedisConnection<String, String> connection) {
        RedisCommands<String, String> redis = connection.sync();
        redis.multi();
        gets(connection.async(), 3000);
        Rows.expectValues(redis.exec().stream().toList(), 3000);
        redis.multi();
        redis.get("7");
        redis.set("1", "x");
        Rows.expectError("EXECABORT", redis::exec);
        redis.multi();
        redis.get("7");
        redis.discard();
        redis.watch("7");
        redis.multi();
        redis.get("3");
        redis.exists(Rows.MISSING);
        TransactionResult result = redis.exec();
        Rows.expect("transaction after WATCH", result.stream().toList(), List.of(Rows.value(3), 0L));
    }

    static void pipeline(StatefulRedisConnection<String, String> connection, int count) throws Exception {
        connection.setAutoFlushCommands(false);
        List<RedisFuture<String>> replies = gets(connection.async(), count);
        connection.flushCommands();
        if (!LettuceFutures.awaitAll(Duration.ofMinutes(5), replies.toArray(RedisFuture[]::new)))
            throw new AssertionError("not all replies arrived");
        List<String> values = new ArrayList<>(count);
        for (RedisFuture<String> reply : replies) values.add(reply.get());
        Rows.expectValues(values, count);
    }

    static RedisClient overTls(int port, File ca) {
        RedisURI.Builder server = RedisURI.Builder.redis("localhost", port).withSsl(true);
        RedisClient client = RedisClient.create(server.withAuthentication("app", "secret").build());
        SslOptions trust = SslOptions.builder().trustManager(ca).build();
        client.setOptions(ClientOptions.builder().sslOptions(trust).build());
        return client;
    }

    public static void main(String[] args) throws Exception {
        boolean isTls = args[0].equals("tls");
        int port = Integer.parseInt(args[1]);
        RedisClient client =
                isTls ? overTls(port, new File(args[2])) : RedisClient.create(RedisURI.create("127.0.0.1", port));
        try (StatefulRedisConnection<String, String> connection = client.connect()) {
            if (args.length > 2 && !isTls) {
                pipeline(connection, Integer.parseInt(args[2]));
            } else {
                reads(connection.sync());
                transactions(connection);
            }
        }
        // The default waits for two seconds without work.
        client.shutdown(Duration.ZERO, Duration.ofSeconds(5));
    }

    private LettuceClient() {}
}
