// Package client makes typed requests to the API server, for any Go type of an object.
//
// New makes a Client for a kube.Cluster. The functions of this package take the Client. They are generic, return
// the object as the API server has it, and never change their arguments:
//
//	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "shop-operator"})
//	...
//	web, err := client.Get[*appsv1.Deployment](ctx, c, kube.Key{Namespace: "shop", Name: "web"})
//	...
//	changed := web.DeepCopy()
//	changed.Spec.Paused = true
//	web, err = client.Patch(ctx, c, web, client.MergeFrom(web, changed))
//
// # Types and kinds
//
// T is a pointer to a struct with metadata. The kinds of the types of k8s.io/api and of the types that were passed to
// kube.Connect are known. *unstructured.Unstructured holds objects of any kind, and *metav1.PartialObjectMetadata the
// metadata only, without the rest being sent; objects of both types carry their kind, or option OfKind or
// kube.Selection.Kind sets it. The client reads once from the discovery whether a kind is namespaced. A missing or
// superfluous namespace is an error, before any request for the object.
//
// Options have four types: ReadOption, WriteOption, DeleteOption and WaitOption. An option that a function does not
// accept is a compile error, or an error before any request.
//
// # Reading
//
// Get, Exists, List (an iterator over pages), All and Keys read from an informer of Config.Informers if possible, and
// otherwise from the API server. An informer returns the objects that it has. Only if it covers the whole selection, it
// also decides that an object does not exist. A read never starts an informer: informers that do not
// run (no controller has them in its Sources or Reads, or that controller has ended) are ignored. Informers are
// slightly stale. FromAPI and GetLive read from the API server.
//
// # Writing
//
// Apply is the recommended write: it declares the fields that matter to the caller, and makes no request if the
// object has them already. Create, Update (which writes every field, and should carry a resourceVersion), Patch
// with MergeFrom, JSONPatch or package strategic, Delete and DeleteAllOf are the other verbs. Option
// Subresource("status") reads and writes the status. Option SubresourceOf is for subresources of another kind: a
// Scale, an Eviction, a Binding, a TokenRequest.
//
// EnsureNamespace and EditMetadata cover common tasks of handlers. Like Apply, they make no request if an informer
// shows that nothing changes. Package compat has CreateOrUpdate and CreateOrPatch.
//
// WaitFor and WaitDeleted are for programs other than controllers.
//
// Each request is sent once. The package does not retry: the workqueue of the controller does.
//
// # Errors
//
// All errors wrap those of apimachinery, so apierrors.IsInvalid and its siblings work on them, and retry.Classify
// returns their class. IgnoreNotFound returns nil for errors that only mean that the object does not exist. ErrGone,
// ErrChanged and ErrReplaced describe what happened to an object; ErrTerminating means that it is being
// deleted; ErrNoNamespace and kube.ErrNotServed mean that something else is missing. Apply returns a
// *ConflictError, WaitFor ErrFailed.
//
// # Settings for all requests
//
// Config contains settings for all requests: DryRun, FieldOwner, FieldValidation, one Namespace. Client.With
// derives another client with different settings. An Interceptor sees every request, and can change, answer or
// reject it; On limits it to some verbs. The client logs each warning of the API server once.
//
// # Destructive requests
//
// A handler decides on the state that an informer shows, which is slightly stale; after a restart of the API
// server, or with a slow watch, it can be minutes old. Most requests tolerate this, because they are repeated
// until the state is right. Deleting and scaling down cannot be undone. To protect them from a stale cache:
//
//  1. Decide on the cache. Usually there is nothing to do, and this costs nothing.
//  2. Before the request, read the object from the API server (GetLive), and check that it is still the same
//     one: a StatefulSet that was deleted and created again has the same name and other data.
//  3. Decide again, on the live object.
//  4. Send the uid and the resourceVersion with the request. The API server rejects it if another write
//     came first.
//
// DeleteLive and ScaleLive do all of this. For example, to scale down a database that is not needed, and never
// one that was just marked as needed again:
//
//	needed := func(database *appsv1.StatefulSet) bool {
//		return database.Annotations["shop.example.com/needed"] != ""
//	}
//	...
//	return client.ScaleLive(ctx, c, database, 0, func(live *appsv1.StatefulSet) error {
//		if needed(live) {
//			return errors.New("it is needed again")
//		}
//		return nil
//	})
//
// ErrGone, ErrReplaced and ErrChanged report that the object has changed. Return them from the handler: the key
// is retried soon, and by then the cache is newer. The preconditions do not cover other inputs of the check
// (other objects, the state of a database): store the deciding fact in the object, as the annotation above.
package client
