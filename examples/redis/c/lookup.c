// Looks keys up in a Zero-KV server: ./lookup SOCKET KEY...; exit status 0 found, 1 not found, 2 error.
// Build with: cc -O2 -Wall -Wextra -o lookup lookup.c -lhiredis
#include <err.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>

static void append(redisContext *table, const char *command, const char *key) {
    const char *words[] = {command, key};
    const size_t lengths[] = {strlen(command), strlen(key)};
    redisAppendCommandArgv(table, 2, words, lengths);
}

// Returns the next reply of the pipeline: an array, a string, a number, or nil. The caller frees the reply.
static redisReply *next(redisContext *table) {
    redisReply *reply;
    if (redisGetReply(table, (void **)&reply) != REDIS_OK) errx(2, "%s", table->errstr);
    if (reply->type == REDIS_REPLY_ERROR) errx(2, "the server replied with an error: %s", reply->str);
    return reply;
}

static void print(const redisReply *reply, const char *end) {
    if (reply->type == REDIS_REPLY_NIL) printf("not found");
    if (reply->type == REDIS_REPLY_INTEGER) printf(reply->integer ? "yes" : "not found");
    if (reply->type == REDIS_REPLY_STRING) fwrite(reply->str, 1, reply->len, stdout);
    for (size_t i = 0; i < reply->elements; i++) print(reply->element[i], i + 1 < reply->elements ? " " : "");
    printf("%s", end);
}

int main(int argc, char **argv) {
    static const char *const commands[] = {"GET", "EXISTS", "ZKV.FLOOR"}, *const names[] = {"get", "exists", "floor"};
    int missing = 0;
    if (argc < 3) errx(2, "usage: %s SOCKET KEY...", argv[0]);
    redisContext *table = redisConnectUnix(argv[1]);
    if (!table || table->err) errx(2, "%s: %s", argv[1], table ? table->errstr : "out of memory");
    for (int key = 2; key < argc; key++)
        for (int i = 0; i < 3; i++) append(table, commands[i], argv[key]);
    for (int key = 2; key < argc; key++) {
        for (int i = 0; i < 3; i++) {
            redisReply *reply = next(table);
            missing |= i == 0 && reply->type == REDIS_REPLY_NIL;
            printf("%s %s: ", names[i], argv[key]);
            print(reply, "\n");
            freeReplyObject(reply);
        }
    }
    redisFree(table);
    return missing;
}
