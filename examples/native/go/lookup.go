// Looks numbers up in a Zero-KV server: go run . SOCKET KEY...; exit status 0 found, 1 not found, 2 error.
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
)

const get, exists, floor = 0, 1, 2
const statusOK, statusNotFound, statusError = 0, 1, 2

var names, maxLen = [3]string{"get", "exists", "floor"}, [3]uint32{1 << 30, 0, 1_073_811_464}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "lookup:", err)
		os.Exit(2)
	}
}

// readResponse returns the value of a response, or nil if the table does not have the row.
// Its buffer grows with the bytes that arrive, not with the announced length.
func readResponse(from io.Reader, op uint32) []byte {
	var header struct{ Status, Len uint32 }
	check(binary.Read(from, binary.BigEndian, &header))
	if header.Status > statusError || header.Len > 0 && (header.Status != statusOK || header.Len > maxLen[op]) {
		check(fmt.Errorf("a response to %s has the header %+v: is this a kv_store?", names[op], header))
	} else if header.Status == statusError {
		check(fmt.Errorf("the server responded to %s with an error: the keys may be bytes; otherwise see its log", names[op]))
	} else if header.Status == statusNotFound {
		return nil
	}
	value := bytes.NewBuffer([]byte{})
	_, err := io.CopyN(value, from, int64(header.Len))
	check(err)
	return value.Bytes()
}

func main() {
	if len(os.Args) < 3 {
		check(errors.New("usage: lookup SOCKET KEY..."))
	}
	server, err := net.Dial("unix", os.Args[1])
	check(err)
	var requests []byte
	for _, key := range os.Args[2:] {
		number, err := strconv.ParseUint(key, 10, 64)
		check(err)
		for op := range names {
			requests = binary.BigEndian.AppendUint64(requests, uint64(op)<<32) // op and padding
			requests = binary.BigEndian.AppendUint64(requests, number)
		}
	}
	go server.Write(requests) // in another goroutine: otherwise client and server could wait for each other forever
	from, status := bufio.NewReader(server), 0
	for i := range 3 * len(os.Args[2:]) {
		op := uint32(i % 3)
		value := readResponse(from, op)
		if value == nil {
			value, status = []byte("not found"), 1
		} else if op == exists {
			value = []byte("yes")
		} else if op == floor { // a page of one row, whose key is little-endian
			value = fmt.Appendf(nil, "%d %s", binary.LittleEndian.Uint64(value[8:]), value[24:][:binary.BigEndian.Uint32(value[20:])])
		}
		fmt.Printf("%s %s: %s\n", names[op], os.Args[2+i/3], value)
	}
	os.Exit(status)
}
