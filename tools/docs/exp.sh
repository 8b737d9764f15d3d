x() { echo "--- $*"; timeout 30 "$@"; echo "= $?"; }
export PATH=/share/docs/node:/share/status:$PATH
/share/docs/node/prepare; lab-server /share/docs/node/prepare
mkdir /media/files
x mount -t nfs -o proto=rdma,port=20049 server:/srv/export /mnt
for o in proto=tcp,nosharecache proto=tcp,vers=3 proto=tcp,vers=4.0 proto=tcp,vers=4.1; do
x mount -t nfs -o $o server:/srv/export /media/files
grep -o '/media/files nfs.*proto=[a-z]*' /proc/mounts
umount /media/files
done
