// Looks keys up in a Zero-KV server: java Lookup.java SOCKET KEY...; exit status 0 found, 1 not found, 2 error. Java 16 or newer.
import java.io.*;
import java.net.UnixDomainSocketAddress;
import java.nio.*;
import java.nio.channels.*;
import java.util.*;

public class Lookup {
    static final int GET = 0, EXISTS = 1, FLOOR = 2, INFO = 6, BYTE_KEY = 1 << 16;
    static final String[] NAMES = {"get", "exists", "floor"};
    static final Map<Integer, Integer> LEN_MAX_BYTES = Map.of(GET, 1 << 30, EXISTS, 0, FLOOR, 1_073_811_464, INFO, 65_536);

    /** Encodes a request for a key that is a number or bytes. */
    static byte[] request(int op, String key, boolean isNumber) {
        if (isNumber) return ByteBuffer.allocate(16).putInt(op).putInt(0).putLong(Long.parseUnsignedLong(key)).array();
        byte[] bytes = key.getBytes();
        return ByteBuffer.allocate((8 + bytes.length + 15) / 16 * 16).putInt(BYTE_KEY + op).putInt(bytes.length).put(bytes).array();
    }

    /** Reads a response. Returns its value, or null if the table does not have the row. */
    static byte[] response(DataInputStream input, int op) throws IOException {
        int status = input.readInt();
        long len = Integer.toUnsignedLong(input.readInt());
        if (status < 0 || status > 2 || len > (status == 0 ? LEN_MAX_BYTES.get(op) : 0))
            throw new IOException("a response to op " + op + " has status " + status + " and " + len + " bytes: is this a kv_store?");
        if (status == 2) throw new IOException("the server responded to op " + op + " with an error: see its log");
        if (status == 1) return null;
        byte[] value = input.readNBytes((int) len);
        if (value.length < len) throw new EOFException("the connection ended after " + value.length + " of " + len + " bytes");
        return value;
    }

    /** Writes the key, a space, and the value of a response to FLOOR, which is a page with one row. */
    static void writeRow(byte[] bytes, OutputStream out) throws IOException {
        ByteBuffer page = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        boolean isNumber = page.get(4) == 1;
        int keyEnd = isNumber ? 16 : 10 + Short.toUnsignedInt(page.getShort(8)), at = (keyEnd + 7) / 8 * 8 + 8;
        out.write(isNumber ? Long.toUnsignedString(page.getLong(8)).getBytes() : Arrays.copyOfRange(bytes, 10, keyEnd));
        out.write(' ');
        out.write(bytes, at, page.order(ByteOrder.BIG_ENDIAN).getInt(at - 4));
    }

    static int run(String[] args) throws Exception {
        if (args.length < 2) throw new IOException("usage: java Lookup.java SOCKET KEY...");
        SocketChannel channel = SocketChannel.open(UnixDomainSocketAddress.of(args[0]));
        DataInputStream input = new DataInputStream(new BufferedInputStream(Channels.newInputStream(channel)));
        int status = 0;
        channel.write(ByteBuffer.wrap(request(INFO, "0", true)));
        boolean isNumber = new String(response(input, INFO)).contains("\nkeys u64\n");
        ByteArrayOutputStream requests = new ByteArrayOutputStream();
        for (int i = 1; i < args.length; i++)
            for (int op : new int[] {GET, EXISTS, FLOOR}) requests.write(request(op, args[i], isNumber));
        // A server buffers a limited number of requests, so another thread sends them while this thread reads.
        new Thread(() -> {
            try {
                for (ByteBuffer unsent = ByteBuffer.wrap(requests.toByteArray()); unsent.hasRemaining();) channel.write(unsent);
            } catch (IOException ignored) { } // The reading thread reports the closed connection.
        }).start();
        OutputStream out = new BufferedOutputStream(System.out);
        for (int i = 1; i < args.length; i++)
            for (int op : new int[] {GET, EXISTS, FLOOR}) {
                byte[] value = response(input, op);
                out.write((NAMES[op] + " " + args[i] + ": ").getBytes());
                status = value == null ? 1 : status;
                if (value != null && op == FLOOR) writeRow(value, out);
                else out.write(value == null ? "not found".getBytes() : op == EXISTS ? "yes".getBytes() : value);
                out.write('\n');
            }
        out.flush();
        return status;
    }

    public static void main(String[] args) {
        try { System.exit(run(args)); } catch (Exception error) { System.err.println("lookup: " + error.getMessage()); }
        System.exit(2);
    }
}
