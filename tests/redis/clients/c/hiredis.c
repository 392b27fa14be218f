// hiredis: ./hiredis SOCKET PORT [COUNT] checks reads and transactions, or one pipeline of COUNT GETs.
#include <err.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 10000 };

static redisReply *checked(redisContext *c, redisReply *reply, const char *command, int type) {
    if (!reply) errx(1, "%s: %s", command, c->errstr);
    if (reply->type != type) errx(1, "%s: type %d (%s), not %d", command, reply->type, reply->str, type);
    return reply;
}

static redisReply *next(redisContext *c, int type) {
    void *reply = NULL;
    redisGetReply(c, &reply);
    return checked(c, reply, "pipeline", type);
}

// Runs a command and checks the type of its reply.
static redisReply *run(redisContext *c, const char *command, int type) {
    return checked(c, redisCommand(c, command), command, type);
}

static void expect_integer(redisContext *c, const char *command, long long expected) {
    redisReply *reply = run(c, command, REDIS_REPLY_INTEGER);
    if (reply->integer != expected) errx(1, "%s: %lld, not %lld", command, reply->integer, expected);
    freeReplyObject(reply);
}

static void expect_prefix(redisContext *c, const char *command, int type, const char *prefix) {
    redisReply *reply = run(c, command, type);
    if (strncmp(reply->str, prefix, strlen(prefix))) errx(1, "%s: %s, not %s", command, reply->str, prefix);
    freeReplyObject(reply);
}

// Checks the value of a key, which is missing if it is not a row.
static void expect_value(const redisReply *reply, int key) {
    char expected[1024];
    size_t len = 20 + key * 7919 % 981;
    memset(expected, 'a' + key % 26, len);
    char digits[16];
    memcpy(expected, digits, sprintf(digits, "%d:", key));
    int is_row = reply->type == REDIS_REPLY_STRING && (size_t)reply->len == len && !memcmp(reply->str, expected, len);
    if (key < ROWS ? !is_row : reply->type != REDIS_REPLY_NIL) errx(1, "GET %d: type %d, %.40s", key, reply->type, reply->str);
}

static int pipeline_key(int i) { return (int)(i * 7LL % (ROWS + 7)); }

static void pipeline(redisContext *c, int count) {
    for (int i = 0; i < count; i++) redisAppendCommand(c, "GET %d", pipeline_key(i));
    for (int i = 0; i < count; i++) {
        void *reply = NULL;
        if (redisGetReply(c, &reply) != REDIS_OK) errx(1, "reply %d: %s", i, c->errstr);
        expect_value(reply, pipeline_key(i));
        freeReplyObject(reply);
    }
}

static void reads(redisContext *c) {
    expect_prefix(c, "PING", REDIS_REPLY_STATUS, "PONG");
    expect_integer(c, "DBSIZE", ROWS);
    expect_integer(c, "EXISTS 1 1 10000", 2);
    expect_integer(c, "STRLEN 7", 20 + 7 * 7919 % 981);
    expect_integer(c, "TTL 7", -1);
    expect_prefix(c, "GETRANGE 7 0 4", REDIS_REPLY_STRING, "7:hhh");
    expect_prefix(c, "TYPE 7", REDIS_REPLY_STATUS, "string");
    expect_prefix(c, "INFO", REDIS_REPLY_STRING, "#");
    expect_prefix(c, "SET 1 x", REDIS_REPLY_ERROR, "READONLY");
    expect_prefix(c, "NOSUCHCOMMAND", REDIS_REPLY_ERROR, "ERR unknown command");
    redisReply *reply = run(c, "MGET 1 10000 3", REDIS_REPLY_ARRAY);
    expect_value(reply->element[0], 1);
    expect_value(reply->element[1], ROWS);
    expect_value(reply->element[2], 3);
    freeReplyObject(reply);
    char command[64] = "SCAN 0";
    size_t keys = 0;
    do {
        reply = run(c, command, REDIS_REPLY_ARRAY);
        keys += reply->element[1]->elements;
        snprintf(command, sizeof(command), "SCAN %s", reply->element[0]->str);
        freeReplyObject(reply);
    } while (strcmp(command, "SCAN 0"));
    if (keys != ROWS) errx(1, "SCAN: %zu keys", keys);
}

static void transactions(redisContext *c) {
    int count = 3000;
    redisAppendCommand(c, "MULTI");
    for (int i = 0; i < count; i++) redisAppendCommand(c, "GET %d", pipeline_key(i));
    redisAppendCommand(c, "EXEC");
    for (int i = 0; i <= count; i++) freeReplyObject(next(c, REDIS_REPLY_STATUS));
    redisReply *replies = next(c, REDIS_REPLY_ARRAY);
    if (replies->elements != (size_t)count) errx(1, "EXEC: %zu replies", replies->elements);
    for (int i = 0; i < count; i++) expect_value(replies->element[i], pipeline_key(i));
    freeReplyObject(replies);
    expect_prefix(c, "WATCH 7", REDIS_REPLY_STATUS, "OK");
    expect_prefix(c, "MULTI", REDIS_REPLY_STATUS, "OK");
    expect_prefix(c, "SET 1 x", REDIS_REPLY_ERROR, "READONLY");
    expect_prefix(c, "EXEC", REDIS_REPLY_ERROR, "EXECABORT");
    expect_prefix(c, "GET 7", REDIS_REPLY_STRING, "7:hhh");
}

int main(int argc, char **argv) {
    redisContext *c = redisConnectUnix(argv[1]);
    if (!c || c->err) errx(1, "%s: %s", argv[1], c ? c->errstr : "out of memory");
    if (argc > 3) {
        pipeline(c, atoi(argv[3]));
    } else {
        reads(c);
        transactions(c);
        redisFree(c);
        c = redisConnect("127.0.0.1", atoi(argv[2]));
        if (!c || c->err) errx(1, "port %s: %s", argv[2], c ? c->errstr : "out of memory");
        reads(c);
        transactions(c);
    }
    redisFree(c);
}
