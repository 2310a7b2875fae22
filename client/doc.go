// Package client makes requests to the API server: typed, from any Go type of an object.
//
// A Client is made of a kube.Cluster, and the functions of this package take it. They are
// generic, return what the API server has, and leave what they were given as it was:
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
// T is a pointer to a struct with metadata. The kinds of k8s.io/api's types and of those that
// kube.Connect was told of are known. *unstructured.Unstructured holds objects of any kind, and
// *metav1.PartialObjectMetadata the metadata alone, which is all that is sent then; both name
// their kind themselves, or by option OfKind. Whether a kind lives in namespaces is asked of the
// cluster, once: a namespace too many or too few is an error before any request for the object.
//
// The compiler rejects an option that a function does not accept: see GetOption and the types beside it.
//
// # Reading
//
// Get, Exists, List (an iterator over pages), All and Keys ask the API server, unless one of
// Config.Informers has what is asked for: an informer answers for an object that it shows, and
// for one that is not there if it shows all that there are. No read ever starts a cache: of an
// informer that does not run (no controller has it in its Sources or Reads, or that one has ended)
// nothing is read. What an informer shows is a little old; FromAPI and Live ask the API server.
//
// # Writing
//
// Apply is the way to make an object be as it should: it declares the fields that one cares
// about, and makes no request when they are so already. Beside it stand Create, Update (which
// writes every field, and should carry a resourceVersion), Patch with MergeFrom, JSONPatch or
// package strategic, Delete and DeleteAllOf. Option Subresource("status") reads and writes the
// status; GetSubresource, CreateSubresource, UpdateSubresource and PatchSubresource are for those
// whose body is something else: a Scale, an Eviction, a Binding, a TokenRequest.
//
// For what handlers do often there are EnsureNamespace, SetLabels, RemoveLabels, SetAnnotations
// and RemoveAnnotations; and CreateOrUpdate and CreateOrPatch, as other libraries have them. Like
// Apply they make no request when there is nothing to do, given informers for what they read.
//
// WaitFor and WaitDeleted wait, for programs that are no controllers.
//
// Requests are sent once. Nothing waits in here for a better time: the error says what there was,
// and the workqueue tries again.
//
// # Errors
//
// ReasonOf says in one word why a request was not done, IgnoreNotFound and IgnoreAlreadyExists
// leave out what is no failure, StatusCauses names the fields of an object that the API server does
// not take. ErrGone, ErrChanged and ErrReplaced say what has become of an object, ErrTerminating
// that it is being deleted, ErrNoNamespace and kube.ErrNotServed that something else is missing.
// Apply returns a *ConflictError, WaitFor ErrFailed. apimachinery's own errors are underneath.
//
// # Every request
//
// Config has what is to be the same for all: DryRun, FieldOwner, FieldValidation, one Namespace;
// Client.With makes another client that differs in some of it. An Interceptor sees every request,
// can change, answer or refuse it; On limits it to some verbs. A Recording keeps what was asked,
// for tests. The API server's warnings are logged once each.
//
// # Acts that cannot be taken back
//
// A handler decides by what an informer has shown, and that is always a little old; after a
// restart of the API server, or behind a slow watch, it may be minutes old. Most acts do not
// mind: they are repeated until the world is right. Deleting and scaling down cannot be taken
// back. How to do them without being misled by a stale cache:
//
//  1. Decide by the cache, as ever; nothing happens most of the time, and costs nothing.
//  2. Before the act, read the object from the API server itself (Live), and see that it is
//     still the same one: a StatefulSet that was deleted and created again has the same name
//     and other data.
//  3. Decide again, by what was read.
//  4. Act on exactly that state: uid and resourceVersion travel with the request, and the API
//     server refuses it if another write came first.
//
// DeleteLive and ScaleLive are these steps in one call. To scale down a database that is not
// needed any longer, and never one that somebody has just marked as needed again:
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
// The errors say what has become of the object: ErrGone, ErrReplaced and ErrChanged. Return
// them from the handler: the key is run again, soon, and by then the cache knows more. What
// the check looks at beside the object itself (other objects, a database's own state) is not
// covered by the preconditions: let the object carry what decides, as the annotation above.
package client
