// Two libraries that firn must refuse as NCCL: one that is old, and one that lacks functions.
#if !defined(POOR_OLD) && !defined(POOR_LACKING)
#error "which one?"
#endif

extern "C" {

int ncclGetVersion(int* version);
int ncclGetVersion(int* version) {
#ifdef POOR_OLD
  *version = 2408;  // 2.4.8
#else
  *version = 22809;
#endif
  return 0;
}

#ifdef POOR_LACKING
int ncclSend();
int ncclSend() { return 0; }
#endif
}
