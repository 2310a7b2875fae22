// Package client makes requests to the API server whose answers can be relied on.
//
// So far it has what destructive acts need. A handler decides by what an informer has shown,
// and that is always a little old; after a restart of the API server, or behind a slow watch,
// it may be minutes old. Most acts do not mind: they are repeated until the world is right.
// Deleting and scaling down cannot be taken back. How to do them without being misled by a
// stale cache:
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
//	err := client.ScaleLive(ctx, cluster, database, 0, func(live *appsv1.StatefulSet) error {
//		if live.Annotations["shop.example.com/needed"] != "" {
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
