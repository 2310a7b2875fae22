// Package client makes typed requests to the API server, for any Go type of an object. New makes a Client for a
// kube.Cluster. The functions return the object as the API server has it, and never change their arguments:
//
//	web, err := client.Get[*appsv1.Deployment](ctx, c, kube.Key{Namespace: "shop", Name: "web"})
//
// T is a pointer to a struct with metadata: a type of k8s.io/api or one that was passed to kube.Connect;
// *unstructured.Unstructured; or *metav1.PartialObjectMetadata for the metadata only. The last two carry their kind, or
// OfKind or kube.Selection.Kind sets it. A missing or superfluous namespace is an error before any request.
//
// Get, Exists, List, All and Keys read from Config.Informers if possible: see Informer. Apply is the recommended write.
// Each request is sent once: the workqueue of the controller retries. DeleteLive and ScaleLive protect requests that
// cannot be undone from a stale cache. Package compat has CreateOrUpdate and CreateOrPatch.
//
// Errors wrap those of apimachinery, so apierrors.IsInvalid and its siblings work on them, and retry.Classify returns
// their class. IgnoreNotFound returns nil if the object does not exist.
package client
