package native

import "portage/metastore"

// Loads are the partitions this broker has open, with what it tells the metastore of each.
func (b *Broker) Loads() []metastore.Load {
	var all []metastore.Load
	for _, p := range b.Partitions() {
		p.mu.Lock()
		if p.serves() && p.log != nil {
			all = append(all, metastore.Load{TopicID: p.topicID, Partition: p.partition, Epoch: p.serving, LogEnd: p.log.DurableEnd(), DiskBytes: p.log.Size(),
				ProducedBytes: p.producedBytes, ConsumedBytes: p.consumedBytes})
		}
		p.mu.Unlock()
	}
	return all
}
