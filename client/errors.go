package client

import "errors"

// What has become of an object since the caller saw it. The errors that wrap these wrap an
// error of k8s.io/apimachinery/pkg/api/errors too: a "not found" for ErrGone, a "conflict" for
// the others.
var (
	// ErrGone says that there is no object of that kind and name.
	ErrGone = errors.New("the object is gone")
	// ErrReplaced says that the object was deleted and another one of its name created: the
	// uid is not the same.
	ErrReplaced = errors.New("the object was replaced by another one of its name")
	// ErrChanged says that the object has been written to in the meantime: the
	// resourceVersion is not the same.
	ErrChanged = errors.New("the object has changed")
)
