package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxBody is the largest request body.
	maxBody = 3 << 20
	// maxStored is the largest write that etcd accepts, and maxSent the largest that etcd's client sends to it.
	maxStored = 3 << 19
	maxSent   = 2 << 20
	// writeOverhead is about what a write has besides the encoded object: its key, twice or three times, and its
	// condition.
	writeOverhead = 150
)

// DeletionStep is the least time between two steps of a deletion, also of those that Kubernetes' controllers make.
// Without it, an object could be gone in the instant in which it becomes terminating, and no client would see that.
const DeletionStep = time.Millisecond

// limitSize returns the real server's error for an object that is too large for etcd. It sets rec.size. As in the real
// server, an object that is too large because of its managed fields loses them, unless the request is an apply.
//
// rec.size is an upper bound: that of the replaced record, and several times the body, because each field has its
// managers. Only an object that may exceed a limit is encoded.
func (r *request) limitSize(rec, old *record) error {
	const perByte, least = 4, 4096
	rec.size = perByte*r.bodySize + least
	if old != nil {
		rec.size += old.size
	}
	if rec.size <= maxStored && r.patchType() != types.JSONPatchType { // which can copy large values
		return nil
	}
	err := r.checkSize(rec)
	if err == nil || r.applies() || r.Method == http.MethodDelete || len(rec.obj.GetManagedFields()) == 0 {
		return err
	}
	rec.obj.SetManagedFields(nil)
	return r.checkSize(rec)
}

// checkSize encodes the object.
func (r *request) checkSize(rec *record) error {
	media := mediaProtobuf
	if _, custom := rec.obj.(*unstructured.Unstructured); custom {
		media = mediaJSON
	}
	text, err := r.serving.codecs.encode(rec.obj, media)
	if err != nil {
		return err
	}
	rec.size = len(text)
	switch size := rec.size + writeOverhead; {
	case size > maxSent:
		return fmt.Errorf("rpc error: code = ResourceExhausted desc = trying to send message larger than max "+
			"(%d vs. %d)", size, maxSent)
	case size > maxStored:
		return errors.New("etcdserver: request is too large")
	}
	return nil
}
