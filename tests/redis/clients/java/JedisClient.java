import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import redis.clients.jedis.AbstractPipeline;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.BuilderFactory;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.CommandObject;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.PipeliningBase;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.SslOptions;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.resps.ScanResult;

/**
 * Jedis: java JedisClient SOCKET PORT [COUNT] checks reads and transactions, or one pipeline of COUNT GETs. java
 * JedisClient tls PORT CA checks reads and transactions over TLS as the user app with the password secret.
 */
final class JedisClient {
    static void reads(RedisClient jedis) {
        Rows.expect("PING", jedis.ping(), "PONG");
        Rows.expect("DBSIZE", jedis.dbSize(), (long) Rows.ROWS);
        Rows.expect("GET", jedis.get("7"), Rows.value(7));
        Rows.expect("GET", jedis.get(Rows.MISSING), null);
        Rows.expect("MGET", jedis.mget("1", Rows.MISSING, "3"), Arrays.asList(Rows.value(1), null, Rows.value(3)));
        Rows.expect("EXISTS", jedis.exists("1", "1", Rows.MISSING), 2L);
        Rows.expect("STRLEN", jedis.strlen("7"), (long) Rows.value(7).length());
        Rows.expect("GETRANGE", jedis.getrange("7", 0, 4), Rows.value(7).substring(0, 5));
        Rows.expect("TYPE", jedis.type("7"), "string");
        Rows.expect("TTL", jedis.ttl("7"), -1L);
        Set<String> keys = new HashSet<>();
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            ScanResult<String> page = jedis.scan(cursor);
            keys.addAll(page.getResult());
            cursor = page.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        Rows.expect("SCAN", keys.size(), Rows.ROWS);
        Rows.expect("INFO", jedis.info().contains("redis_version"), true);
        Rows.expectError("READONLY", () -> jedis.set("1", "x"));
        CommandArguments unknown = new CommandArguments(() -> "NOSUCHCOMMAND".getBytes());
        Rows.expectError(
                "unknown command", () -> jedis.executeCommand(new CommandObject<>(unknown, BuilderFactory.STRING)));
    }

    static List<Response<String>> gets(PipeliningBase pipeline, int count) {
        List<Response<String>> replies = new ArrayList<>(count);
        for (int i = 0; i < count; i++) replies.add(pipeline.get(Integer.toString(Rows.pipelineKey(i))));
        return replies;
    }

    static void transactions(RedisClient jedis) {
        try (AbstractTransaction transaction = jedis.multi()) {
            gets(transaction, 3000);
            Rows.expectValues(transaction.exec(), 3000);
        }
        try (AbstractTransaction transaction = jedis.multi()) {
            transaction.get("7");
            transaction.set("1", "x");
            Rows.expectError("EXECABORT", transaction::exec);
        }
        try (AbstractTransaction transaction = jedis.multi()) {
            transaction.get("7");
            transaction.discard();
        }
        try (AbstractTransaction transaction = jedis.transaction(false)) {
            transaction.watch("7");
            transaction.multi();
            transaction.get("3");
            transaction.exists(Rows.MISSING);
            Rows.expect("transaction after WATCH", transaction.exec(), Arrays.asList(Rows.value(3), false));
        }
    }

    static void pipeline(RedisClient jedis, int count) {
        try (AbstractPipeline pipeline = jedis.pipelined()) {
            List<Response<String>> replies = gets(pipeline, count);
            pipeline.sync();
            Rows.expectValues(replies.stream().map(Response::get).toList(), count);
        }
    }

    /** Converts a certificate authority to a trust store beside it, because jedis reads no PEM files. */
    static Path trustStore(Path ca) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        try (InputStream in = Files.newInputStream(ca)) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(in));
        }
        Path path = ca.resolveSibling("jedis.p12");
        try (OutputStream out = Files.newOutputStream(path)) {
            store.store(out, "changeit".toCharArray());
        }
        return path;
    }

    static RedisClient overTls(int port, Path ca) throws Exception {
        SslOptions trust = SslOptions.builder()
                .truststore(trustStore(ca).toFile(), "changeit".toCharArray())
                .trustStoreType("PKCS12")
                .build();
        DefaultJedisClientConfig config =
                DefaultJedisClientConfig.builder().sslOptions(trust).user("app").password("secret").build();
        return RedisClient.builder().hostAndPort("localhost", port).clientConfig(config).build();
    }

    public static void main(String[] args) throws Exception {
        boolean isTls = args[0].equals("tls");
        int port = Integer.parseInt(args[1]);
        try (RedisClient jedis = isTls ? overTls(port, Path.of(args[2])) : RedisClient.create("127.0.0.1", port)) {
            if (args.length > 2 && !isTls) {
                pipeline(jedis, Integer.parseInt(args[2]));
            } else {
                reads(jedis);
                transactions(jedis);
            }
        }
    }

    private JedisClient() {}
}
