// Looks keys up in a Zero-KV server: ./lookup SOCKET KEY...; exit status 0 found, 1 not found, 2 error.
#include <endian.h>
#include <err.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { GET, EXISTS, FLOOR, INFO = 6, LONG = 1 << 16, OK = 0, NOT_FOUND, ERROR };

// Writes a request for a key of `key_len` bytes, a number unless the op is LONG. Returns the length of the request.
static size_t request(FILE *out, uint32_t op, const void *key, uint32_t key_len) {
    uint32_t header[] = {htobe32(op), htobe32(op < LONG ? 0 : key_len)};
    size_t len = sizeof header + key_len, padding_len = -len % 16;
    fwrite(header, sizeof header, 1, out);
    fwrite(key, 1, key_len, out);
    fwrite("\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 1, padding_len, out);
    return len + padding_len;
}

// Reads a response. Returns its value, which is valid until the next call, or NULL for a missing row. Sets `len`.
static void *response(FILE *in, uint32_t op, uint32_t *len) {
    static char *value;
    uint32_t header[2], max = op == GET ? 1 << 30 : op == FLOOR ? 1073877000 : op == INFO ? 65536 : 0;
    if (fread(header, sizeof header, 1, in) < 1) errx(2, "the connection ended before the response to op %u", op);
    uint32_t status = be32toh(header[0]);
    *len = be32toh(header[1]);
    if (status > ERROR || *len > (status == OK ? max : 0))
        errx(2, "a response to op %u has status %u and %u bytes: is this a kv_store?", op, status, *len);
    if (status == ERROR) errx(2, "the server responded to op %u with an error: see its log", op);
    if (status == NOT_FOUND) return NULL;
    if (!(value = realloc(value, *len + 1))) err(2, "cannot allocate %u bytes for a value", *len);
    if (fread(value, 1, *len, in) < *len) errx(2, "the connection ended inside a value of %u bytes", *len);
    value[*len] = '\0';
    return value;
}

static void print_row(const char *page, size_t len) {  // prints the response to FLOOR, which is a page of one row
    int is_number = len >= 24 && page[4] == 1;
    size_t key_len = len < 24 ? len : is_number ? 6 : le16toh(*(uint16_t *)(page + 8)), value_len;
    size_t value_at = (10 + key_len + 7) / 8 * 8 + 8;
    if (value_at > len || (value_len = be32toh(*(uint32_t *)(page + value_at - 4))) > len - value_at)
        errx(2, "a response of %zu bytes is not a page of one row: is this a kv_store?", len);
    is_number ? printf("%lu ", le64toh(*(uint64_t *)(page + 8))) : printf("%.*s ", (int)key_len, page + 10);
    fwrite(page + value_at, 1, value_len, stdout);
}

int main(int argc, char **argv) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    uint32_t len, missing = 0;
    if (argc < 3) errx(2, "usage: %s SOCKET KEY...", argv[0]);
    strncpy(address.sun_path, argv[1], sizeof address.sun_path - 1);
    if (connect(server, (struct sockaddr *)&address, sizeof address)) err(2, "%s", argv[1]);
    FILE *in = fdopen(server, "r"), *out = fdopen(server, "w");
    request(out, INFO, &(uint64_t){0}, 8), fflush(out);
    char *info = response(in, INFO, &len), *end, *names[] = {"get", "exists", "floor"};
    int kind = info && strstr(info, "\nkeys u64\n") ? 0 : LONG;
    for (int sent = 0, received = 0, all = 3 * (argc - 2); received < all;) {
        for (size_t size = 0; sent < all && size < 16384; sent++) {  // 16 KiB fit into the socket's buffer.
            char *key = argv[2 + sent / 3];
            uint64_t number = (errno = 0, htobe64(strtoull(key, &end, 10)));
            if (kind != LONG && (errno || *end || *key == '-')) errx(2, "%s: this table's keys are numbers", key);
            size += request(out, kind | sent % 3, kind == LONG ? (void *)key : &number, kind == LONG ? strlen(key) : 8);
        }
        for (fflush(out); received < sent; received++) {
            char *value = response(in, received % 3, &len);
            printf("%s %s: ", names[received % 3], argv[2 + received / 3]);
            if (!value) missing = printf("not found") > 0;
            else if (received % 3 == FLOOR) print_row(value, len);
            else fwrite(received % 3 == GET ? value : "yes", 1, received % 3 == GET ? len : 3, stdout);
            putchar('\n');
        }
    }
    return missing;
}
