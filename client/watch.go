package client

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Watch opens a watch of the objects of type T that options select, as the API server serves
// it: it ends after some minutes, or with an error event, and what happens until the next one
// is open is lost. It is for those who know what they do with that; an Informer, or a
// subscription (package subscription), opens it again and misses nothing.
//
// The caller must call Stop, or end ctx, and read ResultChan until it is closed. Objects are of
// type T.
//
// Options: OfKind, InNamespace, WithLabels, LabelSelector, FieldSelector, NotOlderThan: the
// resourceVersion after which events are wanted. Without it the first events are the objects
// that there are.
func Watch[T kube.Object](ctx context.Context, c *Client, options ...Option) (watch.Interface, error) {
	s, err := newSettings(options, listOptionNames("NotOlderThan")...)
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	t, err := targetFor[T](ctx, c, kube.Key{Namespace: s.namespace}, s.kind)
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	r := t.request(VerbWatch, settings{})
	r.List = s.listOptions()
	r.List.ResourceVersionMatch, r.List.Limit = "", 0
	r.Answer = kube.New[T]()
	if err := t.client.send(ctx, r); err != nil {
		return nil, fmt.Errorf("watch %s: %w", t, err)
	}
	return r.Stream, nil
}

// watch opens the stream of a watch.
func (c *Client) watch(ctx context.Context, req *rest.Request, r *Request) error {
	stream, err := req.Watch(ctx)
	if err != nil {
		return explain(c.config.Cluster, r, err)
	}
	r.Stream = stream
	return nil
}

var _ = metav1.Object(nil)
