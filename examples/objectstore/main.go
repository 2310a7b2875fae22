// Command objectstore copies objects of a bucket into ConfigMaps. The object PREFIX/NAMESPACE/NAME belongs to the
// ConfigMap of that namespace and name, if it has the label example=objectstore.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/examples/objectstore/s3"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/source/poll"
)

func main() {
	err := run(context.Background(), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "objectstore:", err)
	}
	os.Exit(manager.ExitStatus(err))
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("objectstore", flag.ExitOnError)
	bucket := flags.String("bucket", "", "`URL` of the bucket, such as https://s3.example.com/settings")
	prefix := flags.String("prefix", "configs/", "beginning of the objects' names")
	interval := flags.Duration("interval", time.Minute, "time between two lists of the bucket")
	var options manager.Options
	if err := options.Parse(flags, args); err != nil {
		return err
	}
	cluster, err := options.Connect()
	if err != nil {
		return err
	}
	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "objectstore-example"})
	if err != nil {
		return err
	}
	objects := pollBucket(*bucket, *prefix, *interval)
	ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
		Name: "objectstore",
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster,
			kube.Selection{LabelSelector: "example=objectstore"}),
		Handler: func(ctx context.Context, obj *corev1.ConfigMap) error {
			object, found, err := objects.Item(*prefix + kube.KeyOf(obj).String())
			if err != nil {
				return err // the first poll has not ended: called again after it
			}
			// a deleted ConfigMap is not created again
			desired := corev1apply.ConfigMap(obj.Name, obj.Namespace).WithUID(obj.UID)
			switch {
			case !found:
			case utf8.Valid(object.Content):
				desired.WithData(map[string]string{"content": string(object.Content)})
			default:
				desired.WithBinaryData(map[string][]byte{"content": object.Content})
			}
			_, err = client.ApplyConfiguration(ctx, c, desired, client.Force())
			return err
		},
		Sources: []controller.Source{objects},
	})
	if err != nil {
		return err
	}
	m, err := options.New(cluster, manager.Config{Runnables: []manager.Runnable{{Runner: ctrl}}})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// pollBucket returns a source that lists the bucket every interval.
func pollBucket(bucket, prefix string, interval time.Duration) *poll.Source {
	// region poll
	objects := poll.New(poll.Config{
		Name: "bucket",
		Poller: poll.FromObjectStore(s3.Bucket{
			URL: bucket, Prefix: prefix, Client: http.DefaultClient,
			KeysOf: func(name string) []kube.Key { // configs/shop/web belongs to ConfigMap shop/web
				key, err := kube.ParseKey(strings.TrimPrefix(name, prefix))
				if err != nil || key.Namespace == "" {
					return nil // another object
				}
				return []kube.Key{key}
			},
		}),
		KeepItems: true, // for Item
		Interval:  interval,
	})
	// endregion
	return objects
}
