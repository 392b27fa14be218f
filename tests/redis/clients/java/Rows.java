import java.util.List;
import java.util.Objects;

/** The rows of the server, and the keys of a pipeline. */
final class Rows {
    static final int ROWS = 10_000;
    static final String MISSING = Integer.toString(ROWS);

    static String value(int key) {
        String start = key + ":";
        return start + Character.toString('a' + key % 26).repeat(20 + key * 7919 % 981 - start.length());
    }

    static int pipelineKey(int i) {
        return (int) (i * 7L % (ROWS + 7));
    }

    static void expect(String what, Object found, Object expected) {
        if (!Objects.equals(found, expected))
            throw new AssertionError(what + ": " + found + " where " + expected + " was expected");
    }

    static void expectValues(List<?> found, int count) {
        expect("number of replies", found.size(), count);
        for (int i = 0; i < count; i++) {
            int key = pipelineKey(i);
            expect("GET " + key, found.get(i), key < ROWS ? value(key) : null);
        }
    }

    static void expectError(String text, Runnable call) {
        try {
            call.run();
        } catch (RuntimeException error) {
            if (error.toString().contains(text)) return;
            throw error;
        }
        throw new AssertionError("no error with the text " + text);
    }

    private Rows() {}
}
