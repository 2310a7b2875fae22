package crd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/evenkeel-go/evenkeel/localcluster"
)

// etcdValues returns what etcd has below a prefix. It makes a Range request by gRPC over the socket in the cluster's
// folder: etcd's own client would be a large dependency of the module.
func etcdValues(t *testing.T, cluster *localcluster.Cluster, prefix string) [][]byte {
	t.Helper()
	end := []byte(prefix)
	end[len(end)-1]++
	request := appendField(appendField(nil, 1, []byte(prefix)), 2, end)
	socket := filepath.Join(filepath.Dir(cluster.Kubeconfig()), "etcd.sock")
	response, err := callEtcd(t.Context(), socket, "/etcdserverpb.KV/Range", request)
	if err != nil {
		t.Fatalf("read %s from etcd: %v", prefix, err)
	}
	var values [][]byte
	for _, kv := range fieldsOf(t, response, 2) {
		values = append(values, fieldsOf(t, kv, 5)...)
	}
	return values
}

// callEtcd makes one unary call.
func callEtcd(ctx context.Context, socket, method string, message []byte) ([]byte, error) {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		Protocols: new(http.Protocols),
	}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	const prefix = 5 // not compressed, and the length
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd"+method, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("TE", "trailers")
	res, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	if status := res.Trailer.Get("Grpc-Status"); status != "0" || len(answer) < prefix {
		return nil, errors.New("status " + status + ": " + res.Trailer.Get("Grpc-Message"))
	}
	return answer[prefix:], nil
}

// appendField appends a field with bytes to a message of protocol buffers.
func appendField(message []byte, field uint64, value []byte) []byte {
	message = binary.AppendUvarint(message, field<<3|2)
	return append(binary.AppendUvarint(message, uint64(len(value))), value...)
}

// fieldsOf returns the values of a field with bytes in a message, which has only such fields and numbers.
func fieldsOf(t *testing.T, message []byte, field uint64) [][]byte {
	t.Helper()
	next := func() uint64 {
		value, n := binary.Uvarint(message)
		if n <= 0 {
			t.Fatalf("invalid message: %q", message)
		}
		message = message[n:]
		return value
	}
	var values [][]byte
	for len(message) > 0 {
		tag, value := next(), next()
		if tag&7 != 2 {
			continue // a number
		}
		if value > uint64(len(message)) {
			t.Fatalf("invalid message: %q", message)
		}
		if tag>>3 == field {
			values = append(values, message[:value])
		}
		message = message[value:]
	}
	return values
}
