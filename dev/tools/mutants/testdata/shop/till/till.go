// Package till stands for a package whose tests start a cluster.
package till
